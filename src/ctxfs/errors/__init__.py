"""Every error that ctxfs raises on purpose: the attributes hold data, and the message says what to do next.

::

    CtxfsError
    ├── ConfigError                  a setting that cannot work (also a ValueError)
    │   └── UnsupportedCacheTtl      a cache time that the model's provider does not offer
    ├── MissingExtra                 an optional dependency is not installed (also an ImportError)
    ├── SessionError
    │   ├── AgentBusy                a second query while one is running
    │   ├── SessionLocked            another process writes this session
    │   ├── SessionNotFound          no such session under this root
    │   ├── QuotaExceeded            the sessions under a root take up more than the limit
    │   ├── SessionExists            a session with that id exists already
    │   ├── SessionDiverged          both copies of a session were written to
    │   ├── SessionClosed            used before open or after close
    │   ├── UnknownItem              no item with that id in this session
    │   ├── ContentGone              a content that was removed on purpose
    │   ├── UnknownCall              no model call with that number in this session
    │   ├── NotRestorable            a content that cannot come back into the context, only be read
    │   └── AmbiguousItem            several sessions have an item with that id
    ├── StorageError
    │   ├── WriteFailed              the bytes are not durable; nothing was replaced
    │   │   └── OutcomeUnknown       a store did not answer: the bytes may be stored, or not
    │   ├── StoreRefused             a server refuses for good: no such database or bucket, no right
    │   ├── NameTaken                create-only: the name exists already
    │   ├── NotStored                no file with that name
    │   ├── CorruptContent           a checksum does not match
    │   ├── CorruptJournal           the journal cannot be read
    │   ├── UnsafePath               a link, a foreign owner, or a name that points outside of the session
    │   ├── Unrecorded               items that could not be written
    │   └── ArchiveError             a file that is not an export of a session
    │       ├── ArchiveDamaged       truncated, changed, or with data after its end
    │       ├── ArchiveUnsafe        names or contents that no export contains: links, "..", duplicates
    │       └── ArchiveTooLarge      more bytes or files than the caller allows
    ├── InvalidRecord                a record that could not be read back from the journal (also a ValueError)
    ├── TranscriptError              messages that a provider would refuse, or that could not be recorded
    ├── ToolError
    │   ├── ToolDefinitionError      a function that cannot become a tool (also a TypeError)
    │   ├── InvalidToolArguments     the model's arguments do not validate
    │   └── WorkLimitReached         a call that exceeds its limit of CPU time
    ├── ModelError
    │   ├── MissingApiKey            no key in the environment
    │   ├── AuthenticationFailed     the provider refused the key
    │   ├── RateLimited              429, after all retries
    │   ├── Overloaded               5xx, after all retries
    │   ├── ConnectionFailed         network or time-out, after all retries
    │   ├── PromptTooLong            the prompt is longer than the provider accepts
    │   ├── InvalidRequest           any other 4xx
    │   ├── InvalidReply             a reply whose usage or model name cannot be recorded (also a ValueError)
    │   ├── ReplyIncomplete          the reply was truncated or interrupted
    │   ├── InvalidFunctionCall      a call in text form that cannot be parsed
    │   └── BudgetSpent              a call that could exceed its budget; it was not sent
    ├── TurnLimitReached             the query reached max_turns
    ├── ContextOverflow              the context does not fit, and nothing in it can be reduced
    └── ReplayFormatError            a recording in no known format
"""

from ctxfs.errors.base import (
    AgentBusy,
    AmbiguousItem,
    ArchiveDamaged,
    ArchiveError,
    ArchiveTooLarge,
    ArchiveUnsafe,
    AuthenticationFailed,
    BudgetSpent,
    ConfigError,
    ConnectionFailed,
    ContentGone,
    ContextOverflow,
    CorruptContent,
    CorruptJournal,
    CtxfsError,
    InvalidFunctionCall,
    InvalidRecord,
    InvalidReply,
    InvalidRequest,
    InvalidToolArguments,
    MissingApiKey,
    MissingExtra,
    ModelError,
    NameTaken,
    NotRestorable,
    NotStored,
    OutcomeUnknown,
    Overloaded,
    PromptTooLong,
    QuotaExceeded,
    RateLimited,
    ReplayFormatError,
    ReplyIncomplete,
    SessionClosed,
    SessionDiverged,
    SessionError,
    SessionExists,
    SessionLocked,
    SessionNotFound,
    StorageError,
    StoreRefused,
    ToolDefinitionError,
    ToolError,
    TranscriptError,
    TurnLimitReached,
    UnknownCall,
    UnknownItem,
    Unrecorded,
    UnsafePath,
    UnsupportedCacheTtl,
    WorkLimitReached,
    WriteFailed,
)

__all__ = [
    "AgentBusy",
    "AmbiguousItem",
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveTooLarge",
    "ArchiveUnsafe",
    "AuthenticationFailed",
    "BudgetSpent",
    "ConfigError",
    "ConnectionFailed",
    "ContentGone",
    "ContextOverflow",
    "CorruptContent",
    "CorruptJournal",
    "CtxfsError",
    "InvalidFunctionCall",
    "InvalidRecord",
    "InvalidReply",
    "InvalidRequest",
    "InvalidToolArguments",
    "MissingApiKey",
    "MissingExtra",
    "ModelError",
    "NameTaken",
    "NotRestorable",
    "NotStored",
    "OutcomeUnknown",
    "Overloaded",
    "PromptTooLong",
    "QuotaExceeded",
    "RateLimited",
    "ReplayFormatError",
    "ReplyIncomplete",
    "SessionClosed",
    "SessionDiverged",
    "SessionError",
    "SessionExists",
    "SessionLocked",
    "SessionNotFound",
    "StorageError",
    "StoreRefused",
    "ToolDefinitionError",
    "ToolError",
    "TranscriptError",
    "TurnLimitReached",
    "UnknownCall",
    "UnknownItem",
    "Unrecorded",
    "UnsafePath",
    "UnsupportedCacheTtl",
    "WorkLimitReached",
    "WriteFailed",
]
