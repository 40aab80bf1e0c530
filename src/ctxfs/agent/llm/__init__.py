"""Messages, the interface of chat models, and two of them: ``ChatAnthropic`` and ``ChatOpenAI``."""
