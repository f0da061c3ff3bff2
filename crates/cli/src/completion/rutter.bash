_rutter() {
    local word out
    COMPREPLY=()
    out=$(command rutter __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
    while IFS=$'\t' read -r word _; do
        if [[ $word == ":files" ]]; then
            COMPREPLY=()
            compopt -o default
            return
        fi
        [[ $word == */ || $word == *= ]] && compopt -o nospace
        [[ -n $word ]] && COMPREPLY+=("$word")
    done <<< "$out"
}
complete -F _rutter rutter
