"""What simulated people talk about, and the sentences they do it in.

Hashtags are ASCII and stand between spaces or punctuation, so that every regular expression finds the same
ones. Nothing here needs escaping in JSON.
"""

from __future__ import annotations

from typing import NamedTuple

TOPICS = tuple(
    """
    coffee rain football election kafka spark python jazz ramen marathon eclipse chess sourdough opera
    tram strike heatwave snow cycling cinema vinyl robots startup housing inflation budget schools hiking
    sunrise sunset comet aurora volcano earthquake storm harvest wine cheese chocolate bakery breakfast
    brunch picnic barbecue festival carnival fireworks concert album podcast theatre museum gallery
    photography painting poetry novel library bookclub crossword puzzle boardgames esports speedrun console
    trailer premiere series finale documentary anime manga fashion sneakers denim knitting pottery
    woodwork gardening tomatoes tulips bees birds puppies kittens horses whales wolves penguins foxes
    ocean river glacier forest desert island lighthouse harbour ferry airport train nightbus roadtrip
    camping climbing surfing skiing swimming rowing tennis rugby cricket basketball volleyball handball
    athletics gymnastics judo boxing cup derby transfer referee penalty medal record science physics
    astronomy telescope rocket moonbase satellite biology genome vaccine medicine mentalhealth sleep
    meditation yoga running steps climate solar windpower battery electriccars bikes scooters metro
    recycling repair opensource linux databases streaming compilers keyboards homeoffice monday friday
    weekend holiday birthday wedding newborn graduation exams internship interview payday promotion
    """.split()  # noqa: SIM905 - words in a row are easier to read and to add to
)


class Language(NamedTuple):
    """Sentences in one language: each opening goes with each ending; `{}` is where the topic stands."""

    code: str
    weight: float
    openings: list[str]
    endings: list[str]

    @classmethod
    def of(cls, code: str, weight: float, openings: str, endings: str) -> Language:
        """One whose openings and endings are written in a row, with `|` between two."""
        return cls(code, weight, openings.split("|"), endings.split("|"))


LANGUAGES = (
    Language.of(
        "en",
        45,
        "Everyone at work is talking about {}|I have been reading about {} all morning|Three hours of {} tonight|"
        "My neighbour will not stop going on about {}|So {} is everywhere again|"
        "Nobody told me that {} could be this good|First day back and it is all {}|Changed my mind about {}|"
        "A whole train carriage arguing about {}|Still thinking about {}",
        ", and I see why.|. What did I miss?| - send help.|, not sorry at all.| and I would do it again tomorrow.|"
        ". Long thread to follow.|, of all things!|. Photos later.| while the kettle boils.|. Do not tell my boss.",
    ),
    Language.of(
        "es",
        14,
        "Todo el mundo habla de {}|Llevo toda la mañana leyendo sobre {}|Otra noche de {}|"
        "Mi vecina no para de hablar de {}|Nadie me avisó de {}|Sigo pensando en {}",
        " y ya entiendo por qué.|. ¿Qué me he perdido?|, y mañana más.|. ¡Qué maravilla!|"
        " mientras se enfría el café.|. Luego subo las fotos.",
    ),
    Language.of(
        "pt",
        9,
        "Toda a gente fala de {}|Passei a manhã a ler sobre {}|Mais uma noite de {}|A minha irmã só fala de {}|"
        "Ninguém me avisou sobre {}",
        " e já percebi porquê.|. O que é que eu perdi?|, e amanhã há mais.|. Que emoção!| enquanto o comboio não vem.",
    ),
    Language.of(
        "fr",
        8,
        "Tout le monde parle de {}|J'ai passé la matinée à lire sur {}|Encore une soirée {}|"
        "Mon voisin ne parle plus que de {}|Personne ne m'avait prévenu pour {}",
        ", et je comprends pourquoi.|. Qu'est-ce que j'ai raté ?|, et ça recommence demain.|. Quelle journée !|"
        " en attendant le métro.",
    ),
    Language.of(
        "de",
        8,
        "Im Büro reden alle über {}|Ich lese schon den ganzen Morgen über {}|Wieder ein Abend mit {}|"
        "Meine Nachbarin hört nicht auf mit {}|Keiner hat mich vor {} gewarnt",
        ", und ich verstehe auch, warum.|. Was habe ich verpasst?|, morgen geht es weiter.|. Schön war's!|"
        ", während der Zug Verspätung hat.",
    ),
    Language.of(
        "it",
        5,
        "Tutti parlano di {}|Ho passato la mattina a leggere di {}|Un'altra serata con {}|"
        "Mio fratello non parla che di {}",
        " e adesso capisco perché.|. Che cosa mi sono perso?|, e domani si ricomincia.|. Che bellezza!",
    ),
    Language.of(
        "nl",
        4,
        "Iedereen heeft het over {}|De hele ochtend gelezen over {}|Alweer een avond {}|"
        "Mijn buurman houdt niet op over {}",
        " en ik snap waarom.|. Wat heb ik gemist?|, en morgen weer.|. Geweldig toch?",
    ),
    Language.of(
        "ja",
        7,
        "みんな {} の話をしている|朝からずっと {} の記事を読んでいる|今夜も {} の時間|まだ {} のことを考えている",
        "。やっとわかった。|。何か見逃した?|。明日も続く。|。最高!",
    ),
)

FIRST_WORDS = tuple(
    """
    quiet brave sunny clever lazy gentle rusty lucky dusty mellow frosty salty golden silver crimson
    amber hidden distant early midnight northern southern wild little tall swift
    """.split()  # noqa: SIM905 - words in a row are easier to read and to add to
)

SECOND_WORDS = tuple(
    """
    fox otter heron badger sparrow walnut maple cedar pebble lantern teapot violin compass anchor
    biscuit pickle comet meadow river harbour miller baker painter sailor rambler
    """.split()  # noqa: SIM905 - words in a row are easier to read and to add to
)
