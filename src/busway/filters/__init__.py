"""Rules of subscriptions: SQL filters, correlation filters and SQL actions (RUL, COR, SQL, ACT)."""
