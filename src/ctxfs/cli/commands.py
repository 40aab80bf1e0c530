"""The commands: where each one is, what it does in one sentence, and how it is used."""

from collections.abc import Mapping
from typing import NamedTuple

COMPLETE_VARIABLE = "_CTXFS_COMPLETE"
"""By this variable of the environment a shell asks for the words to offer; typer derives it from the program's name."""


class Command(NamedTuple):
    """A command of the command line.

    ``place``: its module in ``ctxfs.cli``, and its function. ``summary``: the first line of its docstring, which the
    list of commands shows; it fits one line of 80 columns there. ``examples``: lines for its help. ``paged``: on a
    terminal, its output goes to a pager.
    """

    place: str
    summary: str
    examples: tuple[str, ...]
    paged: bool = False

    @property
    def epilog(self) -> str:
        """The examples, as shown at the end of the command's help."""
        return "\n".join(["\b", "Examples:", *(f"  {example}" for example in self.examples)])


GROUPS: Mapping[str, Mapping[str, Command]] = {
    "look": {
        "sessions": Command(
            "sessions.sessions",
            "List the sessions, newest first.",
            (
                "ctxfs sessions",
                "ctxfs sessions --sort size --limit 10",
                "ctxfs sessions --since yesterday --model 'claude-*' --json",
            ),
            paged=True,
        ),
        "ls": Command(
            "items.ls",
            "List a session's items, in its context and evicted.",
            ("ctxfs ls last", "ctxfs ls last --type tool_result --sort tokens", "ctxfs ls last --place file --json"),
            paged=True,
        ),
        "cat": Command(
            "items.cat",
            "Print an item's content, wherever it is now.",
            ("ctxfs cat last call_001", "ctxfs cat last call_001 --lines 10:20", "ctxfs cat last call_001 --tail 40"),
            paged=True,
        ),
        "show": Command(
            "transcript.show",
            "Show the conversation, now or as sent at a call.",
            ("ctxfs show last --last 4", "ctxfs show last --call 12", "ctxfs show last --call 12 --request"),
            paged=True,
        ),
        "diff": Command(
            "transcript.diff",
            "Show what changed between two requests, and why.",
            ("ctxfs diff last 11", "ctxfs diff last 3 12 --json"),
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
            "Show why items were evicted or kept, and the savings.",
            (
                "ctxfs explain last",
                "ctxfs explain last call_001",
                "ctxfs explain last --changes",
                "ctxfs explain recording.jsonl",
            ),
            paged=True,
        ),
        "view": Command(
            "view.view",
            "Look at sessions in a browser, call by call.",
            ("ctxfs view", "ctxfs view last", "ctxfs view ~/.claude/projects", "ctxfs view last --export page.html"),
        ),
    },
    "change": {
        "restore": Command(
            "going_back.restore",
            "Bring an evicted content back into the context.",
            ("ctxfs restore last call_001 --reason 'asked for'",),
        ),
        "undo": Command(
            "going_back.undo",
            "Undo an eviction, a compaction or a summary.",
            ("ctxfs undo last", "ctxfs undo last change_7"),
        ),
        "pin": Command(
            "going_back.pin",
            "Keep an item in the context, whatever the rules.",
            ("ctxfs pin last msg_001", "ctxfs pin last msg_001 --off"),
        ),
        "fork": Command(
            "going_back.fork",
            "Continue from an earlier call, in a session of its own.",
            ("ctxfs fork last --call 12", "ctxfs fork last --call 12 --as second-try"),
        ),
        "tag": Command(
            "cleanup.tag",
            "Tag a session, for `ctxfs forget` to keep or select.",
            ("ctxfs tag last keep", "ctxfs tag last --remove keep"),
        ),
    },
    "keep tidy": {
        "du": Command(
            "cleanup.du",
            "Show what takes up space, the largest first.",
            ("ctxfs du --limit 10", "ctxfs du --by tool", "ctxfs du last --by item"),
            paged=True,
        ),
        "check": Command(
            "cleanup.check",
            "Check stored contents against their checksums.",
            ("ctxfs check", "ctxfs check --sample 5% --seed 7", "ctxfs check last --json"),
        ),
        "prune": Command(
            "cleanup.prune",
            "Remove stored contents that nothing needs any more.",
            ("ctxfs prune --dry-run", "ctxfs prune last --undo 7d"),
        ),
        "forget": Command(
            "forgetting.forget",
            "Remove sessions, by name or by rules.",
            (
                "ctxfs forget last",
                "ctxfs forget --keep-last 20 --older-than 30d --dry-run",
                "ctxfs forget --older-than 90d --larger-than 20M --keep-tag keep",
                "ctxfs forget --max-size 2G --yes",
            ),
        ),
        "erase": Command(
            "erasing.erase",
            "Remove contents for good, from archives and history too.",
            ("ctxfs erase last call_001 --dry-run", "ctxfs erase last call_001 --reason 'a password' --yes"),
        ),
        "doctor": Command(
            "doctor.doctor",
            "Check this machine: packages, disk, store and prices.",
            (
                "ctxfs doctor",
                "ctxfs doctor --model claude-sonnet-5-5 --json",
                "ctxfs doctor --store s3://bucket/prefix",
                "ctxfs doctor --store postgresql://user@host/name --init",
            ),
        ),
    },
    "move": {
        "export": Command(
            "transfer.export",
            "Write a session into one file.",
            ("ctxfs export last session.ctxfs",),
        ),
        "import": Command(
            "transfer.import_",
            "Make a session from an exported file.",
            ("ctxfs import session.ctxfs", "ctxfs import session.ctxfs --as copy"),
        ),
        "copy": Command(
            "transfer.copy",
            "Copy a session to a store or from one, or update it.",
            ("ctxfs copy last --to s3://bucket/sessions", "ctxfs copy thread-42 --from s3://bucket/sessions"),
        ),
    },
    "lab": {
        "demo": Command(
            "demo.demo",
            "Watch an agent find a bug and mend it; needs no key.",
            ("ctxfs demo", "ctxfs demo --root /tmp/sessions"),
        ),
        "chat": Command(
            "chat.chat",
            "Talk to a model that looks through a directory.",
            (
                "ctxfs chat",
                "ctxfs chat 'Where is the port set?' --dir src",
                "ctxfs chat --session last",
                "ctxfs chat 'Where is the port set?' --json > events.jsonl",
            ),
        ),
        "replay": Command(
            "replay.replay",
            "Show what recorded sessions cost, and would with ctxfs.",
            (
                "ctxfs replay",
                "ctxfs replay recordings/ --policy none --policy economic --html report.html",
                "ctxfs replay recordings/ --tune > mine.toml",
            ),
        ),
        "ab": Command(
            "ab.ab",
            "Compare contexts on your tasks: solved, and the cost.",
            (
                "ctxfs ab tasks.jsonl --budget 20 -- claude -p {prompt}",
                "ctxfs ab tasks.jsonl --arms none,exact:3,clear:100k --margin 5 -- ./agent",
            ),
        ),
    },
    "plug in": {
        "proxy": Command(
            "proxy.proxy",
            "Run a program and evict from its requests to models.",
            ("ctxfs proxy claude", "ctxfs proxy -- codex exec 'Fix the test'"),
        ),
        "mcp": Command(
            "mcp.mcp",
            "Serve stored contents to an MCP client.",
            ("ctxfs mcp last", "ctxfs mcp --claude-code"),
        ),
    },
}
"""The commands by what they are for, in the order of the help."""

COMMANDS: Mapping[str, Command] = {name: command for group in GROUPS.values() for name, command in group.items()}

SUBCOMMANDS: Mapping[str, Command] = {
    "mcp wrap": Command(
        "mcp_wrap.wrap",
        "Stand before an MCP server, and preview its large results.",
        (
            "ctxfs mcp wrap -- npx -y @modelcontextprotocol/server-filesystem .",
            "ctxfs mcp wrap --url https://example.org/mcp --header 'X-Key={KEY}'",
        ),
    ),
    "mcp install": Command(
        "mcp_install.install",
        "Wrap the MCP servers of a client, in its configuration.",
        ("ctxfs mcp install claude-code --all", "ctxfs mcp install codex --server github --dry-run"),
    ),
    "mcp uninstall": Command(
        "mcp_install.uninstall",
        "Take `ctxfs mcp install` back.",
        ("ctxfs mcp uninstall claude-code",),
    ),
}
"""Commands of two words; the help of the first word's command names them."""
REPLACED: Mapping[str, str] = {
    "claude-code": "mcp --claude-code",
    "history": "explain",
    "mcp serve": "mcp SESSION`, or for a session of that name `ctxfs mcp -- serve",
    "pull": "copy",
    "push": "copy",
    "rm": "forget",
    "tune": "replay --tune",
    "verify": "check",
}
"""The command that does the work of one that is gone, or that people expect."""
