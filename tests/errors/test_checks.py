"""What checks of settings say, and what an error says of what it was given."""

import pytest

from ctxfs.errors import ConfigError, SessionNotFound, UnknownItem, UnsafePath, UnsupportedCacheTtl
from ctxfs.errors.base import described
from ctxfs.errors.checks import async_with_only, names_settings, require_int
from ctxfs.eviction import Window
from ctxfs.eviction.economics.parameters import EvictionParameters

LONG = "9" * 100_000


def test_errors_quote_a_line_and_keep_the_data() -> None:
    for error in (UnknownItem(LONG), SessionNotFound(LONG, "root"), UnsafePath(LONG, "is none")):
        assert len(str(error)) < 500
        assert "(100,000 characters)" in str(error)
    assert UnknownItem(LONG).item_id == LONG
    assert len(str(ConfigError(f"setting is {LONG!r}: use a number"))) < 4_100
    assert str(ConfigError(f"setting is {LONG!r}: use a number")).endswith(": use a number")
    assert ConfigError(5).args == (5,)


def test_an_unknown_item_says_where_it_was_looked_for_and_what_lists_the_others() -> None:
    of_session, of_workspace = UnknownItem("c1", session_id="s 1"), UnknownItem("c1", workspace="/data")
    assert str(of_session) == "no item 'c1' in this session: list the items (`ctxfs ls 's 1'`) to see their ids"
    assert str(of_workspace) == "no item 'c1' in the workspace /data: query_artifacts() lists what it has"
    assert of_workspace.told == "no item 'c1' in the workspace /data: use an id or a path that a placeholder names"


def test_a_defect_is_logged_without_its_text() -> None:
    secret = " ".join(("a", "secret"))
    with pytest.raises(KeyError) as caught:
        dict[str, int]().pop(secret)
    said = described(caught.value)
    assert said.startswith("KeyError\n")
    assert "test_checks.py" in said
    assert secret not in said


@pytest.mark.parametrize(("model", "said"), [("", "the provider offers"), ("gpt-5", "the provider of gpt-5 offers")])
def test_a_cache_ttl_that_is_not_offered_says_which_are(model: str, said: str) -> None:
    error = UnsupportedCacheTtl("2h", ["5m", "1h"], model=model)
    assert (error.cache_ttl, error.offered, error.model) == ("2h", ("5m", "1h"), model)
    assert str(error) == f"cache_ttl is '2h': {said} '5m', '1h'"


def test_a_number_has_two_bounds() -> None:
    require_int("n", 3, at_least=1, at_most=3)
    with pytest.raises(ConfigError, match="n is 4: use a whole number, 1 to 3"):
        require_int("n", 4, at_least=1, at_most=3)


@names_settings({"colour": "it is hue here"})
def paint(*, hue: int = 0) -> int:
    return hue


def test_an_unknown_setting_says_which_one_was_meant() -> None:
    assert paint(hue=2) == 2
    for name, said in (("colour", "it is hue here"), ("hued", "did you mean 'hue'"), ("zzz", "its settings are hue")):
        with pytest.raises(TypeError, match=f"paint has no setting '{name}': {said}"):
            paint(**{name: 1})


def test_what_needs_async_with_says_so() -> None:
    @async_with_only
    class Opened:
        pass

    for method in ("__enter__", "__exit__"):
        with pytest.raises(TypeError, match="Opened needs `async with`"):
            getattr(Opened(), method)()


def test_all_unknown_settings_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"no setting 'window_token': did you mean 'window_tokens'\?; no setting 'zzz': "
    ):
        Window(window_token=9, zzz=1)  # type: ignore[call-arg]
    with pytest.raises(
        ConfigError, match=r"no setting 'covr': did you mean 'cover'\?; no setting 'zzz': its settings "
    ):
        EvictionParameters.from_mapping({"covr": 1, "zzz": 2})
