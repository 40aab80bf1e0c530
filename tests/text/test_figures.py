"""How money, sizes, ages and moments are written."""

from ctxfs.text import figures


def test_figures_are_short_and_exact() -> None:
    assert [figures.count(n) for n in (None, 0, 15_358)] == ["?", "0", "15,358"]
    assert [figures.short_count(n) for n in (950, 1_000, 15_358, 153_580, 1_200_000)] == [
        *("950", "1k", "15.4k", "154k", "1.2M")
    ]
    assert [figures.short_count(n) for n in (999, 99_960, 999_499, 999_500, 10**9)] == [
        *("999", "100k", "999k", "1.0M", "1000M")
    ]
    assert [figures.usd(n) for n in (None, 0, 0.00001, 0.0042, -0.5, 35.456)] == [
        *("?", "$0.00", "$0.00", "$0.0042", "-$0.50", "$35.46")
    ]
    assert [figures.size(n) for n in (12, 1_500, 150_000, 2_000_000, 3 * 10**9, 4 * 10**12)] == [
        *("12 B", "1.5 kB", "150 kB", "2.0 MB", "3.0 GB", "4.0 TB")
    ]
    assert (figures.share(1, 3), figures.share(1, 0), figures.share(0, 3)) == ("33%", "0%", "0%")
    assert (figures.share(1, 101), figures.share(1, 100)) == ("under 1%", "1%")
    assert [figures.size(n) for n in (999, 99_960, 999_499, 999_500, 999_999_999)] == [
        *("999 B", "100 kB", "999 kB", "1.0 MB", "1.0 GB")
    ]
    day = 86_400.0
    assert [figures.ago(0.0, now) for now in (5.0, 90.0, 7_200.0, 3 * day, 800 * day)] == [
        *("5 s ago", "2 min ago", "2 h ago", "3 d ago", "2 y ago")
    ]
    assert figures.ago(10.0, 5.0) == "0 s ago"
    assert figures.clock(0.0) == ""
    assert len(figures.clock(1_795_000_000.0)) == len("2026-11-20 10:00:00")
