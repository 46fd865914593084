"""Golden tests: what each stage of the pipeline makes of five programs, as text.

Each program has a file beside these tests. Where a difference is meant, renew the files, read the
difference in Git and commit it:

    JFLOW_RENEW_GOLDEN=1 python -m pytest tests/compiler/golden
"""
