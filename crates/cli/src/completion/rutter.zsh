#compdef rutter
_rutter() {
    local line word text
    local -a found
    for line in "${(@f)$(command rutter __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -z $line ]] && continue
        if [[ $line == ":files" ]]; then
            _files
            return
        fi
        word=${line%%$'\t'*}
        text=${line#*$'\t'}
        if [[ $text == $line ]]; then
            found+=("${word//:/\\:}")
        else
            found+=("${word//:/\\:}:$text")
        fi
    done
    _describe -V rutter found
}
# Called as a function of `fpath`, or read with `source`.
if [[ $funcstack[1] == _rutter ]]; then
    _rutter "$@"
else
    compdef _rutter rutter
fi
