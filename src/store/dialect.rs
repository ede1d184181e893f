//! Where the SQL of the two engines differs.

/// The SQL of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The statement in the SQL of this engine.
    ///
    /// - `{now}`: the time of the database in milliseconds, fixed for one statement.
    /// - `{today}`: the number of the day in UTC.
    /// - `{labels}` and `{offers}`: the elements of the JSON arrays `q.labels` and `$3`, as `label.value` and `offer.value`.
    /// - `{position}`: the function that finds a text in another one, from 1.
    /// - `{for_share}`: keeps the row from being claimed until the transaction ends.
    /// - `{skip_locked}`: passes over rows that another worker is claiming. SQLite has one writer at a time.
    pub(super) fn sql(self, statement: &str) -> String {
        let [now, labels, offers, position, for_share, skip_locked] = match self {
            Self::Sqlite => [
                "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
                "json_each(q.labels) AS label",
                "json_each($3) AS offer",
                "instr",
                "",
                "",
            ],
            // The time at which the statement began: it uses an index, which `clock_timestamp()` cannot.
            Self::Postgres => [
                "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)",
                "jsonb_array_elements_text(CAST(q.labels AS jsonb)) AS label(value)",
                "jsonb_array_elements_text(CAST($3 AS jsonb)) AS offer(value)",
                "strpos",
                "FOR SHARE",
                "FOR UPDATE SKIP LOCKED",
            ],
        };
        statement
            .replace("{today}", "({now} / 86400000)")
            .replace("{now}", now)
            .replace("{labels}", labels)
            .replace("{offers}", offers)
            .replace("{position}", position)
            .replace("{for_share}", for_share)
            .replace("{skip_locked}", skip_locked)
    }
}
