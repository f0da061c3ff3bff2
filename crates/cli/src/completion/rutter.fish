function __rutter_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (command rutter __complete -- $words[2..] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c rutter -f -a '(__rutter_complete)'
