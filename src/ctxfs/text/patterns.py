"""Parts of regular expressions that match alike in every Python. Pure."""


def possessive(body: str, times: str) -> str:
    """A group that repeats ``body`` as often as ``times`` says (``*``, ``+``, ``?``, ``{m,n}``) and gives nothing back.

    Python before 3.11.5 continues where a failed repetition stopped, not where it began
    (https://github.com/python/cpython/issues/106052), unless the last alternative fails without taking a character.
    """
    return f"(?:{body}|(?!)){times}+"
