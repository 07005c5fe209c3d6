"""The report: runs and designs as one self-contained HTML page."""

from hush.report.page import report

__all__ = ["report"]
