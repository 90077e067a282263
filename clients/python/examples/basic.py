"""A limit per key, in process."""

from datetime import timedelta

from throttlekit import Budget, Limiter, Rate


def main() -> None:
    # A smooth rate with a burst, and a quota for the calendar day. Both must allow a request.
    limiter = Limiter(
        Rate(5, timedelta(minutes=1)),
        limits={"daily": Budget.per_day(10_000)},
    )
    for number in range(1, 7):
        decision = limiter.check("alice")
        if decision:
            print(f"{number}: allowed, {decision.remaining} left")
        else:
            print(f"{number}: denied, retry after {decision.retry_after:.0f} s")

    # Costs, several keys at once, and a look without a charge.
    print("batch:", [bool(d) for d in limiter.check_many([("bob", 3), ("bob", 3), ("carol", 5)])])
    print("bob has", limiter.peek("bob").remaining, "left")


if __name__ == "__main__":
    main()
