#!/bin/sh
# Memory over HTTP with curl: an agent learns, explains itself, and is put right.
#
#     backstory serve &
#     sh examples/rest.sh
#
# A recorded reply plays the model, so it needs no key. BACKSTORY_URL and BACKSTORY_TOKEN name another server.
set -eu
url="${BACKSTORY_URL:-http://127.0.0.1:8765}/v1"
user="user=${BACKSTORY_EXAMPLE_USER:-alan}"

call() {
    method=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --request "$method" "$url/$path" \
        --header "Authorization: Bearer ${BACKSTORY_TOKEN:-none}" --header 'Content-Type: application/json' "$@"
    echo
}

echo '--- record a conversation; sent again with the same key, it counts once'
for attempt in 1 2; do
    call POST "record?$user" --header 'Idempotency-Key: monday-1' --data '{
        "thread": "monday",
        "messages": [
            {"role": "user", "content": "I am allergic to peanuts, but I love Thai food."},
            {"role": "assistant", "content": "I will leave the peanuts out."}
        ]}'
done

echo '--- extract what it says; without `replies` the model is asked, and it happens by itself after a while'
call POST "extract?$user" --data '{"replies": [{"thread_id": "monday", "reply": {"newFacts": [
    {"content": "Alan is allergic to peanuts", "category": "preference", "confidence": 0.95, "evidence": [1]},
    {"content": "Alan likes Thai food", "category": "preference", "confidence": 0.9, "evidence": [1]}]}}]}'

echo '--- the block for the prompt of the next call'
call GET "context?$user&for=What%20shall%20I%20cook%3F"

echo '--- search, and ask why'
call GET "search?$user&query=peanuts&top_k=1"
call GET "facts/fact_2_0/why?$user"

echo '--- change a fact only if the memory is still the one that was seen'
etag=$(call GET "facts?$user" --dump-header - --output /dev/null | tr -d '\r' | sed -n 's/^etag: //p')
call PATCH "facts/fact_2_1?$user" --header "If-Match: $etag" --data '{"content": "Alan likes Thai food, mild"}'

echo '--- undo it'
call POST "revert?$user" --data '{"seq": "HEAD"}'

echo '--- the log'
call GET "log?$user&limit=2"
