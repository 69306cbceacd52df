"""What is checked of an open page: axe-core, its width, the size of what is tapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
#: Frames show what models wrote, and have no access from outside.
_RUN_AXE = """
async (preload) => {
  const { violations } = await axe.run(document, { iframes: false, preload });
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) =>
      `${id}: ${target.join(" ")}: ${failureSummary.replace(/\\s+/g, " ")}`));
}
"""
_MEASURE_WIDTH = """
(width) => {
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")]
    .filter((node) => {
      const { left, right } = node.getBoundingClientRect();
      return left < -1 || right > width + 1;
    })
    .slice(0, 5)
    .map((node) => `wider than the page: ${node.outerHTML.slice(0, 120)}`);
}
"""
#: A link in a text is as high as its line; a box is tapped by its label, too.
_MEASURE_TARGETS = """
() => {
  const kinds = "a[href], button, input, select, textarea, summary, [role=button]";
  const isShown = (node) =>
    node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    !node.closest(".visually-hidden, .skip, [inert]") && node.type !== "hidden";
  const isInText = (node) =>
    node.matches("a") && getComputedStyle(node).display === "inline" &&
    node.closest("p, li, dd, td, th, small, q, .prose, .asked, .breadcrumbs");
  const isLarge = (node) => {
    const { width, height } = node.getBoundingClientRect();
    return width >= 43.5 && height >= 43.5;
  };
  return [...document.querySelectorAll(kinds)]
    .filter((node) => isShown(node) && !node.disabled && !isInText(node))
    .filter((node) => ![node, ...(node.labels ?? [])].some(isLarge))
    .map((node) => {
      const { width, height } = node.getBoundingClientRect();
      const size = `${Math.round(width)} x ${Math.round(height)}`;
      return `small target: ${size} ${node.outerHTML.slice(0, 160)}`;
    });
}
"""


def find_faults(
    page: Page, *, is_touched: bool = False, preload: bool = True
) -> list[str]:
    """What is wrong with the page as it is open now. `preload` lets axe read the
    stylesheets, for one rule; it copies those that import others into an inline style,
    which the console reports as refused."""
    page.evaluate(AXE)
    faults: list[Any] = page.evaluate(_RUN_AXE, preload)
    assert page.viewport_size
    faults += page.evaluate(_MEASURE_WIDTH, page.viewport_size["width"])
    if is_touched:
        faults += page.evaluate(_MEASURE_TARGETS)
    return faults
