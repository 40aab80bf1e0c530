# Tell the user of hooks of ctxfs that failed in this turn: Claude Code notes them in the transcript only.
# Standard input is the event, as JSON. In the transcript, the quotes of what tools returned are escaped, so that only
# Claude Code's own notes match. What was told stands there, too, and is not told again.
transcript=$(sed -n 's/.*"transcript_path": *"\([^"]*\)".*/\1/p')
[ -r "$transcript" ] || exit 0
awk '
  /"type":"hook_non_blocking_error".*plugin:ctxfs:ctxfs/ { failed++ }
  /"type":"hook_system_message".*The plug-in ctxfs failed/ { failed = 0 }
  END {
    if (!failed) exit
    printf "{\"systemMessage\": \"The plug-in ctxfs failed %d %s: what tools returned then is not stored, ", failed, failed == 1 ? "time" : "times"
    printf "and stays in the conversation. Its server was not ready, or has ended: see /mcp, and whether the command "
    print "ctxfs is on the PATH of Claude Code. With MCP_CONNECTION_NONBLOCKING=0 in its environment, Claude Code waits for servers.\"}"
  }
' "$transcript"
