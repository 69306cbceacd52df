"""What people and models say in the conversations of `rows`.

A line that ends with "~" goes on in the next one.
"""

from __future__ import annotations

NAME = "nora"  # of the user to whom it is said
LEAVING = "leonie"  # whom the action of erasure is about
NEWCOMER = "nils"  # who has not accepted the terms
STARTER = "petra"  # who has the password that staff have set
GUEST = "owen"  # who signs in at a provider

INTEREST_QUESTION = (
    "We put aside 250 € a month for our daughter, at about 4 % a year. How much is it"
    " after 18 years? Show me the formula, and a Python function I can check it with."
)
INTEREST = r"""After 18 years you have about **78,900 €**, of which 54,000 € are your ~
own deposits and 24,900 € are interest.

A deposit $P$ at the end of each month, with a monthly rate $r$ and $n$ months, grows to

$$F = P \cdot \frac{(1 + r)^n - 1}{r}, \qquad r = \frac{0.04}{12},\quad n = 216$$

| After | Deposits | Interest | Together |
|:---|---:|---:|---:|
| 6 years | 18,000 € | 2,306 € | 20,306 € |
| 12 years | 36,000 € | 10,109 € | 46,109 € |
| 18 years | 54,000 € | 24,898 € | **78,898 €** |

```python
def grow(deposit: float, rate: float, years: int) -> float:
    # What monthly deposits are worth at the end.
    r, n = rate / 12, years * 12
    return deposit * ((1 + r) ** n - 1) / r


print(f"{grow(250, 0.04, 18):,.0f}")  # 78,898
```

More than half of the interest comes in the last six years, so it pays to leave it ~
where it is.""".replace("~\n", "")

INFLATION_QUESTION = "And in today's money, if prices rise by 2 % a year?"
INFLATION = r"""Divide by $(1.02)^{18} \approx 1.428$: about **55,200 €** in today's ~
money.

- Without interest, your 54,000 € would be worth roughly 37,800 €.
- So the 4 % mostly keep up with prices, and add a little.

A fund with a higher return would change this more than a higher deposit, but its ~
value can also fall just when she turns 18.""".replace("~\n", "")

TRIP_QUESTION = "Plan a long weekend in Lisbon at the end of March. Is it warm enough?"
TRIP = """Yes: expect about 18 °C by day and 11 °C at night, with one or two wet days. ~
Bring a light jacket.

1. **Friday** – Alfama and the castle in the afternoon, dinner near the Sé.
2. **Saturday** – tram 28 before nine, then Belém and the tile museum.
3. **Sunday** – train to Sintra (40 minutes); buy the palace tickets beforehand.
4. **Monday** – LX Factory, coffee, airport.

The metro to the airport takes 25 minutes.""".replace("~\n", "")
TRIP_THOUGHT = """The user wants a plan for a long weekend. First the **weather** at the
end of March, then four days with short ways and something for rain."""

LONG_CODE_QUESTION = (
    "Write the migration that splits the name into two columns, safely."
)
LONG_CODE = """Split it in three releases, so that old and new code both work meanwhile.

## The three steps

```sql
-- 1. Add the columns; old code ignores them.
ALTER TABLE customer ADD COLUMN given_name text, ADD COLUMN family_name text;

-- 2. Fill them in batches of 5,000 rows, each in a short transaction.
WITH batch AS (
    SELECT id FROM customer WHERE family_name IS NULL LIMIT 5000 FOR UPDATE SKIP LOCKED
)
UPDATE customer
SET given_name = split_part(name, ' ', 1),
    family_name = substr(name, length(split_part(name, ' ', 1)) + 2)
FROM batch
WHERE customer.id = batch.id;

-- 3. After the release that writes both:
ALTER TABLE customer ALTER COLUMN family_name SET NOT NULL;
ALTER TABLE customer DROP COLUMN name;
```

- [x] Old code keeps running during step 1 and 2
- [x] No lock is held for more than a batch
- [ ] Names with one word need a decision[^1]

> Run step 3 only when no process of the old release is left.

[^1]: `substr` returns an empty text for them, which `NOT NULL` accepts."""

DIAGRAM_QUESTION = "Draw how an order goes through our shop."
DIAGRAM = """This is the usual way of an order, with the two places where it can stop:

```mermaid
flowchart LR
  A[Cart] --> B{Paid?}
  B -- yes --> C[Pick]
  B -- no --> D[Reminder]
  D --> B
  C --> E[Ship]
  E --> F[Delivered]
```

Refunds start from *Delivered* and are not shown."""

PAGE_QUESTION = "Make a small page that announces our summer concert."
PAGE = """Here is the page; the colours are easy to change at the top.

```html
<!doctype html>
<html lang="en">
<head>
<title>Summer concert</title>
<style>
  body { font: 18px/1.5 Georgia, serif; margin: 0; background: #fdf6e9; color: #432; }
  main { max-width: 32rem; margin: 4rem auto; padding: 0 1.5rem; }
  h1 { font-size: 2.6rem; line-height: 1.1; }
  .date { color: #a3441d; font-weight: bold; }
</style>
</head>
<body>
<main>
  <p class="date">Saturday, 27 June, 19:30</p>
  <h1>Summer concert in the orchard</h1>
  <p>The Millfield choir sings songs from three centuries. Bring a blanket; the coffee
  is on us. If it rains, we meet in the church.</p>
</main>
</body>
</html>
```

Tell me the right date and I change it."""

SOURCES_QUESTION = "Since when must shops in the EU say how long a device gets updates?"
SOURCES = (
    "Since 20 June 2025, for smartphones and tablets: a label and a product sheet state"
    " for how long updates are available, and it must be at least five years."
)
SOURCE_PLACES = [(0, 18), (52, 132)]

POEM_QUESTION = "A haiku about the first snow, please."
POEMS = [
    "The street forgets us –\none set of small paw prints goes\nwhere nobody went.",
    "First snow on the roof.\nThe cat looks out, then at me,\nas if I did it.",
    "Night takes the last leaf.\nIn the morning the whole town\nspeaks in a low voice.",
]
REMINDER_QUESTION = "Send the reminder for invoice 2026-0417 to Brandt & Sons."
REPORT_QUESTION = "Read the three reports and write a summary of one page."
REPORT = """**Summary, third quarter**

Sales rose by 6 %, mostly from repair services. Costs of energy"""

TERMS = """\
Version of the board of 2 November 2026, for everybody who uses this server.

## What you may send

1. Send **no names, addresses or account numbers** of people who have not agreed.
2. Drafts, statutes and minutes are fine.

| Contents | Models elsewhere | Models on our own machine |
|---|---|---|
| Public texts | yes | yes |
| Minutes | after the board has agreed | yes |
| Members' data | never | yes |

## Who reads what

Staff read a conversation only with a reason, and each reading is recorded. Ask the
[board](https://example.org/board) if you want to know more.
"""
