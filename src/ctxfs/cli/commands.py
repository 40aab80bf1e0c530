"""The commands: where each one is, what it does in one sentence, and how it is used."""

from collections.abc import Mapping
from typing import NamedTuple

COMPLETE_VARIABLE = "_CTXFS_COMPLETE"
"""By this variable of the environment a shell asks for the words to offer; typer derives it from the program's name."""


class Command(NamedTuple):
    """A command of the command line.

    ``place``: its module in ``ctxfs.cli``, and its function. ``summary``: the first line of its docstring, which the
    list of commands shows. ``examples``: lines for its help. ``paged``: on a terminal, its output goes to a pager.
    """

    place: str
    summary: str
    examples: tuple[str, ...]
    paged: bool = False

    @property
    def epilog(self) -> str:
        """The examples, as shown at the end of the command's help."""
        return "\n".join(["\b", "Examples:", *(f"  {example}" for example in self.examples)])


COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        "demo.demo",
        "Watch an agent explore a directory; needs no key.",
        ("ctxfs demo", "ctxfs demo src --root /tmp/sessions"),
    ),
    "chat": Command(
        "chat.chat",
        "Talk to a model that can list, read and search a directory.",
        (
            "ctxfs chat",
            "ctxfs chat 'Where is the port set?' --dir src",
            "ctxfs chat --session last",
            "ctxfs chat 'Where is the port set?' --json > events.jsonl",
        ),
    ),
    "sessions": Command(
        "sessions.sessions",
        "List the sessions, newest first.",
        (
            "ctxfs sessions",
            "ctxfs sessions --sort size --limit 10",
            "ctxfs sessions --since 7d --model 'claude-*' --json",
        ),
        paged=True,
    ),
    "ls": Command(
        "items.ls",
        "List what a session's context holds, and what was evicted.",
        ("ctxfs ls last", "ctxfs ls last --type tool_result --sort tokens", "ctxfs ls last --place file --json"),
        paged=True,
    ),
    "show": Command(
        "transcript.show",
        "Show the conversation, as it stands or as it was sent at a call.",
        ("ctxfs show last --last 4", "ctxfs show last --call 12", "ctxfs show last --call 12 --request"),
        paged=True,
    ),
    "diff": Command(
        "transcript.diff",
        "Show what changed between the requests of calls N and M, and why.",
        ("ctxfs diff last 11", "ctxfs diff last 3 12 --json"),
        paged=True,
    ),
    "history": Command(
        "transcript.history",
        "List what was evicted, archived, restored and removed, with the ids that `ctxfs undo` takes.",
        ("ctxfs history last", "ctxfs history last call_001"),
        paged=True,
    ),
    "restore": Command(
        "going_back.restore",
        "Bring an evicted content back into the context when an agent next opens the session.",
        ("ctxfs restore last call_001 --reason 'asked for'",),
    ),
    "undo": Command(
        "going_back.undo",
        "Undo an eviction, a compaction or a summary: the last one, or the one with the given id.",
        ("ctxfs undo last", "ctxfs undo last change_7"),
    ),
    "pin": Command(
        "going_back.pin",
        "Keep an item in the context, whatever the rules; an evicted one comes back.",
        ("ctxfs pin last msg_001",),
    ),
    "unpin": Command(
        "going_back.unpin",
        "Let a pinned item be evicted again like any other.",
        ("ctxfs unpin last msg_001",),
    ),
    "fork": Command(
        "going_back.fork",
        "Make a session that continues from an earlier call of this one; both share their files.",
        ("ctxfs fork last --call 12", "ctxfs fork last --call 12 --as second-try"),
    ),
    "cat": Command(
        "items.cat",
        "Print an item's content, wherever it is now.",
        ("ctxfs cat last call_001", "ctxfs cat last call_001 --lines 10:20"),
        paged=True,
    ),
    "tail": Command(
        "items.tail",
        "Print the last lines of an item's content.",
        ("ctxfs tail last call_001 -n 40",),
        paged=True,
    ),
    "grep": Command(
        "grep.grep",
        "Search everything that a session holds.",
        (
            "ctxfs grep last 'Error|Traceback'",
            "ctxfs grep last -i timeout --item call_001 -C 2",
            "ctxfs grep --all -l 'port 8080' --tool Bash --since 7d",
            "ctxfs grep --all --json -F 'connection refused'",
        ),
        paged=True,
    ),
    "explain": Command(
        "explain.explain",
        "Show why each item was evicted or kept, and what that saved.",
        ("ctxfs explain last", "ctxfs explain recording.jsonl"),
        paged=True,
    ),
    "view": Command(
        "view.view",
        "Look at sessions in a browser: where the context went, call by call.",
        ("ctxfs view", "ctxfs view last", "ctxfs view ~/.claude/projects", "ctxfs view last --export page.html"),
    ),
    "replay": Command(
        "replay.replay",
        "Show what recorded sessions cost, and what they would have cost with ctxfs.",
        ("ctxfs replay", "ctxfs replay recordings/ --policy none --policy economic --html report.html"),
    ),
    "tune": Command(
        "replay.tune",
        "Count eviction parameters on recorded sessions.",
        ("ctxfs tune recordings/*.json > mine.toml",),
    ),
    "completion": Command(
        "completion.completion",
        "Print a script that completes commands, options, sessions and items.",
        (
            "ctxfs completion bash > ~/.local/share/bash-completion/completions/ctxfs",
            "ctxfs completion zsh > ~/.zfunc/_ctxfs",
            "ctxfs completion fish > ~/.config/fish/completions/ctxfs.fish",
        ),
    ),
    "mcp": Command(
        "mcp.mcp",
        "Serve a session to an MCP client, over standard input and output.",
        ("ctxfs mcp last",),
    ),
    "claude-code": Command(
        "claude_code.claude_code",
        "Serve Claude Code's plug-in: its hook, and its reading tools.",
        ("ctxfs claude-code --preview-above-tokens 20000",),
    ),
    "proxy": Command(
        "proxy.proxy",
        "Run a program whose requests to models are rewritten on their way out.",
        ("ctxfs proxy claude", "ctxfs proxy --keep-recent Read=3 -- codex exec 'Fix the test'"),
    ),
    "verify": Command(
        "sessions.verify",
        "Check every stored byte against its checksum.",
        ("ctxfs verify last",),
    ),
    "check": Command(
        "cleanup.check",
        "Check sessions: their stored contents against their checksums, and their indexes.",
        ("ctxfs check", "ctxfs check --sample 5% --seed 7", "ctxfs check last --json"),
    ),
    "du": Command(
        "cleanup.du",
        "Show what takes up space, the largest first.",
        ("ctxfs du --limit 10", "ctxfs du --by tool", "ctxfs du last --by item"),
        paged=True,
    ),
    "tag": Command(
        "cleanup.tag",
        "Tag a session for `ctxfs forget` to keep or select; without a tag, list its tags.",
        ("ctxfs tag last keep", "ctxfs tag last --remove keep"),
    ),
    "forget": Command(
        "cleanup.forget",
        "Remove sessions by rules, each with a reason.",
        (
            "ctxfs forget --keep-last 20 --keep-within 30d --dry-run",
            "ctxfs forget --older-than 90d --larger-than 20M --keep-tag keep",
            "ctxfs forget --max-size 2G --yes",
        ),
    ),
    "prune": Command(
        "cleanup.prune",
        "Remove stored contents that nothing needs any more.",
        ("ctxfs prune --dry-run", "ctxfs prune last --undo 7d"),
    ),
    "erase": Command(
        "erasing.erase",
        "Remove contents for good, from archives and history too.",
        ("ctxfs erase last call_001 --dry-run", "ctxfs erase last call_001 --reason 'a password' --yes"),
    ),
    "export": Command(
        "transfer.export",
        "Write a session into one file, with everything that it stored.",
        ("ctxfs export last session.ctxfs",),
    ),
    "import": Command(
        "transfer.import_",
        "Make a session from an exported one.",
        ("ctxfs import session.ctxfs", "ctxfs import session.ctxfs --as copy"),
    ),
    "push": Command(
        "transfer.push",
        "Copy a session to a bucket, byte for byte, or update the copy there.",
        ("ctxfs push last s3://bucket/sessions",),
    ),
    "pull": Command(
        "transfer.pull",
        "Copy a session from a bucket into the directory, byte for byte, or update the copy there.",
        ("ctxfs pull last s3://bucket/sessions",),
    ),
    "store": Command(
        "storecheck.store",
        "Prepare a store before its first use: create the tables in a database.",
        ("ctxfs store init --store postgresql://user@host/name",),
    ),
    "doctor": Command(
        "doctor.doctor",
        "Show what is installed, where sessions are, whether the disk syncs, and which prices are known.",
        ("ctxfs doctor", "ctxfs doctor --model claude-sonnet-5-5 --json", "ctxfs doctor --store s3://bucket/prefix"),
    ),
    "rm": Command(
        "sessions.rm",
        "Remove sessions with everything that they stored.",
        ("ctxfs rm last", "ctxfs rm session_20261101_0900 session_20261102 --yes"),
    ),
}
