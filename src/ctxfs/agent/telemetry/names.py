"""Every name that is sent: those of the conventions for generative AI, which are in development, and ours."""

# Spans and what they carry: github.com/open-telemetry/semantic-conventions-genai
OPERATION = "gen_ai.operation.name"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
COMPACTED = "gen_ai.conversation.compacted"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens"  # its name in the conventions up to 1.41
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"

# Content, which is sent only where it is asked for
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# Metrics of the conventions
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - of a model
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - of a model
OPERATION_DURATION = "gen_ai.client.operation.duration"

# Our events
OFFLOAD = "ctxfs.offload"
EVICT = "ctxfs.evict"
COMPACT = "ctxfs.compact"
RESTORE = "ctxfs.restore"
READ_BACK = "ctxfs.read_back"
OFFLOAD_FAILED = "ctxfs.offload_failed"
RECORD_FAILED = "ctxfs.record_failed"
SUMMARY_FAILED = "ctxfs.summary_failed"
RETRY = "ctxfs.retry"

# What they carry
ITEM = "ctxfs.item.id"
CONTENT_REF = "ctxfs.content.ref"
SESSION_PATH = "ctxfs.session.path"
REASON = "ctxfs.reason"
STEPS = "ctxfs.steps"
TOKENS = "ctxfs.tokens"
TOKENS_BEFORE = "ctxfs.tokens.before"
TOKENS_AFTER = "ctxfs.tokens.after"
SIZE = "ctxfs.size"
FIRST_LINE = "ctxfs.first_line"
LAST_LINE = "ctxfs.last_line"
COST = "ctxfs.cost"

# Our metrics; the cost has the name of the attribute
CONTEXT_TOKENS = "ctxfs.context.tokens"
CACHE_RATE = "ctxfs.cache.rate"
STORED_SIZE = "ctxfs.stored.size"
FREED_TOKENS = "ctxfs.freed.tokens"
STORE_RETRIES = "ctxfs.store.retries"
STORE_UNKNOWN = "ctxfs.store.unknown_outcomes"
STORE_LOST = "ctxfs.store.lost_sessions"
