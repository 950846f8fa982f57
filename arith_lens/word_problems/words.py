"""What may stand for words that ask for a number: lists of one grammatical kind, of any length."""

NICE = (
    *("nice", "fine", "good", "plain", "common", "pretty", "famous", "lovely", "proper", "usual"),
    *("typical", "special", "favorite", "beautiful", "wonderful", "interesting", "ordinary"),
    *("old", "new", "odd", "bad", "dry", "sad", "big", "neat", "rare"),
)
ADJECTIVES = (
    *("nice", "fine", "good", "kind", "calm", "happy", "pretty", "famous", "lovely", "useful"),
    *("clever", "pleasant", "beautiful", "wonderful", "interesting"),
)
ADVERBS = (
    *("well", "gladly", "badly", "nicely", "happily", "calmly", "quietly", "kindly", "openly"),
    *("secretly", "honestly", "beautifully", "wonderfully"),
)
CLEARLY = (
    *("clearly", "truly", "sadly", "visibly", "obviously", "certainly", "strangely"),
    *("apparently", "surprisingly", "unfortunately"),
)
THINGS = ("things", "ones", "items", "objects", "presents", "possessions")
PART = ("part", "side", "kind", "sort", "corner", "version", "section")
NOUNS = (
    *("location", "color", "name", "story", "shape", "origin", "history", "meaning", "reason"),
    *("purpose", "beauty", "style", "smell", "sound", "look", "background", "importance"),
)
PLURALS = (
    *("locations", "colors", "names", "stories", "shapes", "origins", "meanings", "reasons"),
    *("places", "styles", "sounds", "looks", "backgrounds"),
)
PLACE = ("place", "moment", "season", "corner", "station", "occasion", "mood", "spirit")
SONGS = (
    *("song", "story", "name", "place", "color", "game", "book", "word", "food", "animal"),
    *("picture", "language", "instrument", "kind"),
)
TELL = (
    *("describe", "explain", "mention", "discuss", "imagine", "remember", "illustrate"),
    *("tell us", "talk about", "think of"),
)
MAIN = ("main", "usual", "true", "real", "proper", "public", "famous", "ordinary", "traditional")
SUIT = ("suit", "please", "fit", "help", "amuse", "delight", "entertain")
SUITS = ("suits", "pleases", "fits", "helps", "amuses", "delights", "entertains")
SUITED = ("suited", "pleased", "helped", "amused", "delighted", "entertained")
AFTER_IN = ("public", "private", "general", "secret", "town", "winter", "theory", "principle")
AFTER_ON = ("purpose", "paper", "stage", "holiday", "principle", "vacation")
SOMEHOW = (
    *("outside", "nearby", "indoors", "gladly", "again", "yesterday", "somehow", "tomorrow"),
    *("at home", "in town", "with joy", "at school", "by accident", "for a change"),
)
WHERE = ("where", "when", "why")
LATE = ("exactly", "else", "then", "now", "again", "actually")
JUST = ("just", "exactly", "and", "so", "say", "precisely", "really")
WHICH = ("which", "what", "whose")
OTHER = ("other", "better", "nicer", "older", "different")

CALCULATED = (
    *("number", "total", "sum", "difference", "average", "amount", "cost", "price", "percentage"),
    *("percent", "ratio", "profit", "value", "age", "weight", "length", "distance", "area"),
    *("perimeter", "volume", "width", "height", "speed", "rate", "time", "score", "salary"),
    *("income", "fee", "bill", "expense", "quantity", "product", "revenue", "discount", "tax"),
    *("balance", "budget", "capacity", "count", "size", "temperature", "probability", "chance"),
    *("fraction", "mean", "median", "grade", "population", "depth", "duration", "wage"),
    *("payment", "pay", "change", "charge", "tip", "rent", "interest", "loss", "worth", "tally"),
    *("portion", "proportion", "share", "increase", "decrease", "reduction", "result", "measure"),
    *("gain", "thickness", "mass", "elevation", "circumference", "earning", "saving", "radius"),
    *("diameter", "money", "year", "day", "hour", "month"),
)
"""Nouns of what is calculated."""
