"""The end of the scripts that check files: every finding as a line "FILE:LINE: TEXT", and the exit status."""


def report(names, findings):
    """Print what findings(name) yields for each file; 1 if that is anything, else 0."""
    bad = 0
    for name in names:
        for finding in findings(name):
            print(f"{name}:{finding}")
            bad = 1
    return bad
