"""The common end of scripts that check files: prints every finding as "FILE:LINE: TEXT", and sets the exit status."""


def report(names, findings):
    """Prints the findings(name) of each file; returns 1 if there are any, else 0."""
    bad = 0
    for name in names:
        for finding in findings(name):
            print(f"{name}:{finding}")
            bad = 1
    return bad
