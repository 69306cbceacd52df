"""The demo's longer texts. They state that the demo is a script."""

from __future__ import annotations

#: Instructions and their effects, as `/help` and the documentation list them.
INSTRUCTIONS = {
    "/fail 429": "answers with that HTTP status (400 to 599), as a real API would; "
    "also `/fail quota`, `/fail context`, `/fail policy`",
    "/fail stream": "breaks off with an error in the middle of the answer",
    "/cut": "drops the connection in the middle of the answer",
    "/slow 20": "waits 20 seconds before the first word",
    "/long 5000": "counts to 5000, so that a lost or repeated piece shows",
    "/think": "thinks before it answers",
    "/markdown": "shows headings, a table, code, lists and links",
    "/tool NAME {json}": "calls that tool with these arguments",
    "/echo text": "says exactly that",
    "/help": "lists these instructions",
}

HELP = (
    "I am a demo and no AI. A message may begin with one of these:\n\n"
    + "\n".join(f"- `{name}` {what}" for name, what in INSTRUCTIONS.items())
    + "\n\n`/think`, `/slow`, `/cut` and `/fail stream` may be followed by a question: "
    "`/slow 5 /think What is 12*7+3?`"
)

GREETING = """\
Hello! I am **the demo: a script, no AI.** I can show how answers stream and how tools \
work, but I understand only a few questions. Try one of these:

- What is the weather in Paris, and what time is it there?
- What is 12*7+3?
- Count from 1 to 40
- `/markdown` shows what an answer can look like
- `/think What time is it in Tokyo?` thinks first
- `/help` lists the rest, failures too

**To talk to a real model,** open the admin, add a provider with its API key and one \
of its models; it then appears in the list of models beside me."""

THANKS = "You are welcome, says the script. `/help` lists what else I can show."

NO_NAME = "You have not told me your name in this conversation."

NOTHING_BEFORE = "This is your first message in this conversation."

NO_TOOL = {
    "weather": "I would ask a weather tool, but for this question I have none that "
    "fits: either none was offered or you named no city. A script cannot guess.",
    "time": "I would ask a clock tool, but for this question I have none that fits: "
    "either none was offered or I do not know the place. A script has no clock.",
    "maths": "I would ask a calculator, but none was offered with this question, and a "
    "script does not work out sums by itself.",
}

SHOWPIECE = '''\
# What an answer can look like

Text may be **bold**, *italic*, ~~struck out~~ or `code`, and it may hold \
[a link](https://www.djangoproject.com/). This is the demo speaking: a script, no AI.

## A table

| City | Sample weather | °C |
|:-----|:---------------|---:|
| Paris | light rain | 12 |
| Tokyo | clear | 18 |
| Nairobi | thunder | 24 |

## Code

```python
def fibonacci(count: int) -> list[int]:
    """The first `count` numbers: 0, 1, 1, 2, 3, 5, ..."""
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]
```

## Lists

1. First a thing
2. Then another
   - with a detail
   - and one more
3. And the last

> A quotation stands by itself,
> on as many lines as it needs.

Special characters arrive as they are: 日本語, ελληνικά, عربى, 👩‍🚀, \
<b>not bold</b>, 5 < 7 & 7 > 5.

---

That is all there is to show.
'''.rstrip()
