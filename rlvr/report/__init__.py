"""Pages from folders: one self-contained HTML file for an experiment or for any runs, and an index of all. Never imports torch.

A page opens offline, in light and dark, on a phone, and can be made again from the folders alone; it holds
no date and no path of the machine it was made on, so the same folders give the same bytes.
"""

from rlvr.report.page import write_report, write_run_report
from rlvr.report.site import write_site

__all__ = ["write_report", "write_run_report", "write_site"]
