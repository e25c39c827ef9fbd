"""Pictures of sagas, drawn from the same fold as recovery: nothing is drawn that was not checked first.

```text
picture    what is drawn of a saga: its steps, where each effect stands, and damage
looks      how each state looks: a shape, a glyph and a word, besides the colour
svg        what all SVGs share: escaping, colours for light and dark, titles
graph      one saga as Mermaid, DOT or SVG
animate    one saga, step by step, as an SVG without a script
fleet, chain, outcomes    many sagas; the records of one, as checked; what became of each tool's calls
replay     time travel through one saga: the state of the world as the log knew it
commands   `agent-saga graph | animate | viz | replay`
```
"""
