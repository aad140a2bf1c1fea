"""Pages of studies: prose is wrapped, tables are not."""

from invariant_bandits_reproduction.studies.harness import wrap_prose


def test_prose_is_wrapped_and_keeps_its_words_while_tables_stay():
    table = f"| {'x' * 120} |"
    page = f"# Title\n\n{'word ' * 40}\n- {'item ' * 40}\n{table}\n"
    wrapped = wrap_prose(page)
    lines = wrapped.splitlines()
    assert wrapped.split() == page.split()
    assert table in lines
    assert max(len(line) for line in lines if line != table) <= 100
    assert any(line.startswith("  item") for line in lines)
