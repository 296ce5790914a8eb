"""The words that canaries are made of are plain English, and no pattern takes one for a name.

A value is an adjective and a noun (``velvet harbour``), a subject is a thing and a place (``the boiler
of the chapel``); no word stands in two lists.
"""

from __future__ import annotations

__all__ = ["ADJECTIVES", "NOUNS", "PLACES", "THINGS"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES: tuple[str, ...] = _words(
    """
    amber ancient autumn bashful bitter blue brave bright bronze calm careful cheerful clever copper
    coral crimson crooked curious dancing distant drowsy dusty eager early earnest elegant emerald
    faithful famous feathered fearless foggy fragrant frosty gentle gilded golden grateful gloomy hazel
    hollow honest humble idle ivory jolly kindly lavender lazy lemon lively lonely lucky marble mellow
    merry mighty misty modest mossy nimble noble noisy northern olive orange painted patient pearly
    pink playful polished proud purple quiet rainy restless rosy rustic salty scarlet secret shady
    shiny silent silver sleepy slender snowy solemn sparkling speckled spotted starry steady stormy
    striped sturdy sunny tender thirsty thorny timid tranquil velvet violet wandering western whispering
    wild winter wooden yellow
    """
)
"""First words of values."""

NOUNS: tuple[str, ...] = _words(
    """
    acorn almond anchor antler apricot badger bamboo barrel basket beacon beaver beetle blossom bonfire
    bramble bridge buffalo butterfly cactus camel candle canyon carrot castle cello cherry chestnut
    clover cobbler comet compass cottage cradle cricket cuckoo daisy dolphin donkey dragonfly eagle elm
    falcon feather fern fiddle firefly flamingo forest fox garlic gazelle ginger glacier goose grape
    hammock harbour hazelnut hedgehog heron honey horizon iceberg iris island ivy jasmine juniper
    kettle kingfisher ladder lagoon lantern lark lighthouse lilac lizard lobster magnolia mango maple
    meadow melon mitten mountain mushroom nightingale nutmeg oasis otter owl panther parrot parsley
    peach pebble pelican penguin pepper pigeon pine plum poppy pumpkin rabbit radish raven ribbon
    river robin rooster saffron sailor salmon seagull shepherd snail sparrow spinach squirrel starfish
    swallow thistle thunder tiger trumpet tulip turnip turtle valley violin walnut waterfall willow
    zebra
    """
)
"""Second words of values."""

THINGS: tuple[str, ...] = _words(
    """
    alarm attic boiler calendar cellar chimney corridor entrance fountain garden gate heating kitchen
    ledger lift mailbox noticeboard parking pantry roof staircase terrace workshop
    """
)
"""What a canary is about …"""

PLACES: tuple[str, ...] = _words(
    """
    abbey bakery barracks brewery casino chapel clinic college dairy embassy gallery hostel hotel
    laundry monastery museum nursery observatory orphanage pharmacy planetarium refinery sawmill
    shipyard spa stadium tannery theatre vicarage winery
    """
)
"""… and where that is."""
