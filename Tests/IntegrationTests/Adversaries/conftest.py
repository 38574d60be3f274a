"""Prints the table of adversaries at the end of a run, however quiet that is asked to be."""

import table


def pytest_terminal_summary(terminalreporter):
    lines = list(table.lines())
    if lines:
        terminalreporter.section("adversaries")
        for line in lines:
            terminalreporter.write_line(line)
