"""The page's style."""

from hush.app.drawing import STYLE as _DRAWINGS

__all__ = ["STYLE"]

# The verdict stays in sight while one scrolls through controls and pictures; nothing is wider than the window. Nothing
# fades: a redraw is over before a fade would be, and without a graphics processor fading is much of its work. On a
# phone, where one column stands above the other, the pictures come before the controls.
_PAGE = """
.block-container {padding-top: 1rem; padding-bottom: 2rem; max-width: 1500px;}
:has(> .st-key-verdict) {position: sticky; top: 0; z-index: 100; background: var(--st-background-color);}
.st-key-verdict h2 {padding: 0; font-size: 1.6rem;}
.about h1 {padding: 0; font-size: 1.15rem; display: inline; margin-right: 0.8rem;}
.about p {font-size: 0.875rem; display: inline; opacity: 0.8;}
.numbers {display: flex; flex-wrap: wrap; gap: 0.5rem 1.3rem; margin: 0 0 1rem;}
.numbers dt {font-size: 0.875rem; font-weight: 400;}
.numbers dd {font-size: 1.15rem; margin: 0;}
.numbers sub, .about sub {line-height: 0;}
.numbers .bad dd {color: #d55e00; font-weight: 600;}
header[data-testid="stHeader"] {height: 0; min-height: 0;}
.stApp * {transition: none !important;}
[data-stale="true"] {opacity: 1 !important;}
.pictures {display: grid; gap: 1.2rem 1.5rem; margin-bottom: 1rem; grid-template-columns: minmax(0, 1fr);}
.pictures figure {margin: 0;}
.pictures figcaption {font-size: 0.875rem; opacity: 0.7;}
@media (min-width: 900px) {
  .pictures {grid-template-columns: repeat(6, minmax(0, 1fr));}
  .pictures figure {grid-column: span 3;}
  .pictures figure:nth-child(5):nth-last-child(3), .pictures figure:nth-child(5):nth-last-child(3) ~ figure {
    grid-column: span 2;
  }
}
@media (max-width: 640px) {
  .st-key-verdict h2 {font-size: 1.2rem;}
  .st-key-verdict p {font-size: 0.85rem;}
  .block-container {padding-left: 0.8rem; padding-right: 0.8rem;}
  [data-testid="stColumn"]:has(.st-key-controls) {order: 2;}
}
"""
STYLE = _PAGE + _DRAWINGS
