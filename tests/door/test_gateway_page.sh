#!/usr/bin/env bash
# tests/door/test_gateway_page.sh - the gateway's page in Chromium (Debian's package chromium). PICTURES=FOLDER keeps screenshots.
. "$(dirname "$0")/gateway.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip_all "chromium is not installed"
needs_commands python3
make_folder
cd "$root" || exit 1
# A model whose stories do not end.
sed -i 's/"eos_token_id": [0-9]*/"eos_token_id": 2047/' "$model"/config.json "$model"/generation_config.json
start_server 2 --model "$model"
(umask 077 && echo open-sesame >"$dir/keys")
start_gateway open && open=http://$address
start_gateway guarded --api-keys "$dir/keys" && guarded=http://$address
python3 tests/door/page.py "$browser" "$open" "$guarded" open-sesame "$dir/profile" ${PICTURES:+"$PICTURES"}
