"""Signs that Word stores as codes of the fonts Wingdings and Symbol, as Unicode.

Source: https://www.unicode.org/Public/MAPPINGS/VENDORS/ADOBE/symbol.txt
Source: https://www.unicode.org/L2/L2011/11052r-wingding.pdf
"""

from __future__ import annotations

_UNKNOWN = "\ufffd"


def _table(signs: str) -> dict[str, str]:
    """From pairs of a code and a sign."""
    return {pair[:2]: pair[2] for pair in signs.split()}


_LETTERS = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖαβχδεφγηιϕκλμνοπθρστυϖωξψζ",
)
_SYMBOL = {
    **{f"{ord(sign):X}": sign for sign in "!#%&()+,./0123456789:;<=>?[]_{|}"},
    **{f"{ord(code):X}": sign for code, sign in zip(*_LETTERS, strict=True)},
    **_table("22∀ 24∃ 2A∗ 2D− 40≅ A2′ A3≤ A5∞ AB↔ AC← AD↑ AE→ AF↓ B0° B1± B2″ B3≥"),
    **_table("B4× B6∂ B7• B8÷ B9≠ BA≡ BB≈ C6∅ C7∩ C8∪ CE∈ D1∇ D5∏ D6√ D7⋅ D9∧ DA∨"),
    **_table("DB⇔ DE⇒ E5∑ F2∫"),
}
_BY_FONT = {
    "Symbol": _SYMBOL,
    # Boxes of forms; the arrows that Word writes for --> and <--, and others.
    "Wingdings": _table(
        "78☒ A8☐ 6F☐ FB✗ FC✓ FD☒ FE☑ DF← E0→ E1↑ E2↓ E7← E8→ EF⇦ F0⇨ F3⬄"
        " 4A☺ 4C☹ 6C● 6E■ 76❖ 9F• A7▪ D8➢"
    ),
    "Wingdings 2": _table("50✓ 52☑ 53☒ 54☒ A3☐"),
}


def sign_of(font: str, code: str) -> str:
    """The sign of a code of four digits, which Word moves into the private area of
    Unicode. U+FFFD for one that is not known."""
    return _BY_FONT.get(font, {}).get(code.upper()[-2:], _UNKNOWN)
