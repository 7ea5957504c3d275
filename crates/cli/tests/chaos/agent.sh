#!/bin/sh
# An agent in plain sh, which starts in a millisecond: two hundred of them come back after each kill.
#
# Each message is answered with a burst of `agent.part` and one `agent.answer`, which carries the state
# and covers the message. Beside that it murmurs a while after its start, whoever listens. What it is told
# is checked: `agent.confused` says that a message came twice, too late, or without its state.

life=none covered=0 talker=

number() { # the number in the member $2 of the line $1; 0 if there is none
    rest=${1#*\"$2\":}
    value=${rest%%[!0-9]*}
    [ -n "$value" ] || value=0
    [ "$rest" != "$1" ] || value=0
}

confused() {
    printf '{"event":"agent.confused","content":"%s"}\n' "$1"
}

murmur() {
    n=1
    while [ $n -le 3 ]; do
        sleep 2 >&- 2>&-
        printf '{"event":"agent.murmur","content":{"life":"%s","n":%d}}\n' "$life" $n
        n=$((n + 1))
    done
}

start() {
    number "$1" last_seq
    life=$$.$value
    number "$1" in_seq
    covered=$value
    number "$1" answered
    [ "$value" = "$covered" ] || confused "the state knows of $value, the server of $covered"
    [ "$covered" != 0 ] || printf '{"event":"session.state","content":{"answered":0},"in_seq":0}\n'
    murmur &
    talker=$!
}

answer() {
    number "$1" in_seq
    in_seq=$value
    [ "$in_seq" = $((covered + 1)) ] || confused "told $in_seq after $covered"
    covered=$in_seq
    number "$1" burst
    burst=$value
    rest=${1#*\"message_id\":\"}
    id=${rest%%\"*}
    part=1
    while [ $part -le "$burst" ]; do
        printf '{"event":"agent.part","content":{"life":"%s","message_id":"%s","n":%d}}\n' \
            "$life" "$id" $part
        part=$((part + 1))
    done
    last=false
    case $1 in *'"last":true'*)
        last=true
        kill $talker && wait $talker # after the last answer it says nothing
        ;;
    esac
    printf '{"event":"agent.answer","content":{"life":"%s","message_id":"%s","in_seq":%d,"parts":%d,"last":%s},"in_seq":%d,"state":{"answered":%d}}\n' \
        "$life" "$id" "$in_seq" "$burst" $last "$in_seq" "$in_seq"
}

while read -r line; do
    case $line in
    *'"event":"session.start"'*) start "$line" ;;
    *'"event":"user.message"'*) answer "$line" ;;
    esac
done
