"""Offers of data streams: each is good once, for its own nonce, and not for long."""

import os

from jflow.net.protocol.offers import OFFER_S, DataOffer, OpenOffers


def _offer():
    return DataOffer("/run/socket", "boot", os.urandom(32))


def test_an_offer_is_taken_once_by_the_proof_of_its_nonce():
    offers, offer = OpenOffers(), _offer()
    offers.add(offer, "session", 0.0)
    assert offers.pop(offer.caller_proof, 1.0) == "session"
    assert offers.pop(offer.caller_proof, 1.0) is None


def test_neither_the_nonce_nor_the_server_s_proof_nor_another_offer_s_takes_it():
    offers, offer = OpenOffers(), _offer()
    offers.add(offer, "session", 0.0)
    for proof in (offer.nonce, offer.server_proof, _offer().caller_proof, b""):
        assert offers.pop(proof, 1.0) is None
    assert offers.pop(offer.caller_proof, 1.0) is not None


def test_an_offer_expires_and_those_that_were_made_later_do_not():
    offers, early, late = OpenOffers(), _offer(), _offer()
    offers.add(early, "early", 0.0)
    offers.add(late, "late", OFFER_S / 2)
    assert offers.pop(early.caller_proof, OFFER_S) is None
    assert offers.pop(late.caller_proof, OFFER_S) == "late"


def test_offers_that_are_never_taken_are_forgotten():
    offers = OpenOffers()
    for i in range(100):
        offers.add(_offer(), i, i * OFFER_S)
    assert len(offers) == 1


def test_an_offer_that_was_withdrawn_is_not_good():
    offers, offer = OpenOffers(), _offer()
    offers.add(offer, "session", 0.0)
    offers.cancel(offer)
    offers.cancel(offer)
    assert offers.pop(offer.caller_proof, 0.0) is None


def test_an_offer_does_not_show_its_nonce():
    offer = _offer()
    assert offer.nonce.hex() not in repr(offer)
    assert repr(offer.nonce) not in repr(offer)
