"""Captions of a generated scene, by a small grammar with synonyms; each mentions some facts."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.data.scenes.layout import Draw, Group, Scene

# the first word of each list is chosen with probability above one half, see one_word
NOUNS = {
    "ball": (("ball", "balls"), ("sphere", "spheres")),
    "box": (("box", "boxes"), ("block", "blocks"), ("square", "squares")),
    "triangle": (("triangle", "triangles"), ("pyramid", "pyramids")),
    "star": (("star", "stars"),),
    "cross": (("cross", "crosses"), ("plus", "pluses")),
    "ring": (("ring", "rings"), ("hoop", "hoops")),
}
SIZE_WORDS = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
COLOUR_WORDS = {
    "red": ("red", "crimson"),
    "purple": ("purple", "violet"),
    "black": ("black", "dark"),
}
ACTION_WORDS = {
    "rolling": ("rolling", "tumbling"),
    "jumping": ("jumping", "hopping", "leaping"),
    "spinning": ("spinning", "turning"),
    "resting": ("resting", "lying", "sitting"),
}
PLACE_WORDS = {
    "grass": ("on the grass", "in a field", "on the green lawn"),
    "snow": ("in the snow", "on a snowy ground"),
    "sand": ("on the sand", "at the beach"),
    "water": ("in the water", "on the lake"),
}
RELATION_WORDS = {
    "left": ("to the left of", "left of"),
    "right": ("to the right of", "right of"),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
}
NUMBERS = {
    1: ("a", "one"),
    2: ("two", "a pair of", "a couple of"),
    3: ("three", "several", "a group of"),
    4: ("four", "several", "a group of"),
}


def different(caption: Callable[[], str], number: int) -> list[str]:
    """Call ``caption`` until there are ``number`` different captions."""
    found: dict[str, None] = {}
    while len(found) < number:
        found[caption()] = None
    return list(found)


def captions(scene: Scene, draw: Draw, number: int) -> list[str]:
    """``number`` different captions that are true of ``scene``, as raw text."""
    return different(lambda: _caption(scene, draw), number)


def _caption(scene: Scene, draw: Draw) -> str:
    first, second, *third = scene.groups
    # a caption starts with a group with probability proportional to its salience
    salience = [len(g.things) * (2 if g.size == "large" else 1) for g in (first, second)]
    if draw.below(sum(salience)) >= salience[0]:
        first, second = second, first
    one, other = noun_phrase(first, draw), noun_phrase(second, draw)
    relation = draw.one_of(first.relations(second))
    placed = f"{one_word(RELATION_WORDS[relation], draw)} {other}"
    doing = one_word(ACTION_WORDS[first.action], draw)
    be = "are" if len(first.things) > 1 else "is"
    where = f" {one_word(PLACE_WORDS[scene.place], draw)}" if draw.chance(40) else ""
    # the third group is only mentioned, without a relation
    also = f" and {noun_phrase(third[0], draw)}" if third and draw.chance(50) else ""
    template = draw.below(6)
    if template == 0:
        text = f"{one} {be} {doing}{where}"
    elif template == 1:
        text = f"there {be} {one} {placed}{also}{where}"
    elif template == 2:
        doing_too = one_word(ACTION_WORDS[second.action], draw)
        text = f"{one} {doing} and {other} {doing_too}{where}"
    else:
        text = f"{one} {be if template == 3 else ''} {doing} {placed}{also}{where}"
    text = " ".join(text.split())
    return f"{text[0].upper()}{text[1:]}."


def noun_phrase(group: Group, draw: Draw) -> str:
    """ "two small red balls": always number and noun, 80 % with colour, 35 % with size."""
    count = len(group.things)
    noun = _pair(NOUNS[group.shape], draw)[count > 1]
    words = [one_word(NUMBERS[count], draw)]
    if draw.chance(35):
        words.append(one_word(SIZE_WORDS[group.size], draw))
    if draw.chance(80):
        words.append(one_word(COLOUR_WORDS.get(group.colour, (group.colour,)), draw))
    text = " ".join([*words, noun])
    return f"an{text[1:]}" if text.startswith("a orange") else text


def one_word(words: tuple[str, ...], draw: Draw) -> str:
    """The first word in half of the cases, else a uniform choice from all."""
    return words[0] if draw.chance(50) else draw.one_of(words)


def _pair(pairs: tuple[tuple[str, str], ...], draw: Draw) -> tuple[str, str]:
    return pairs[0] if draw.chance(50) else draw.one_of(pairs)
