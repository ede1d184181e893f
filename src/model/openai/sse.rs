//! Server-sent events. Only the `data` fields: models use no others.

/// Parses a stream of events in chunks of any size. It buffers only the current event.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    line: Vec<u8>,
    data: Option<String>,
    last_was_cr: bool,
    begun: bool,
}

impl EventParser {
    /// Parses the next bytes and returns the data of each completed event. An incomplete event at the end of the stream
    /// is dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some((&first, after_first)) = rest.split_first() {
            let after_cr = std::mem::replace(&mut self.last_was_cr, first == b'\r');
            rest = match first {
                b'\n' if after_cr => after_first,
                b'\n' | b'\r' => {
                    events.extend(self.end_of_line());
                    after_first
                }
                _ => {
                    let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                    let (text, rest) = rest.split_at(end.unwrap_or(rest.len()));
                    self.line.extend_from_slice(text);
                    rest
                }
            };
        }
        events
    }

    /// How many bytes of the current event are buffered.
    pub(crate) fn buffered(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, String::len)
    }

    /// Handles a complete line. An empty line completes an event.
    fn end_of_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if !self.begun => rest,
            _ => &line,
        };
        self.begun = true;
        if line.is_empty() {
            return self.data.take();
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => &[][..],
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            // A comment or another field.
            _ => return None,
        };
        let value = String::from_utf8_lossy(value);
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(&value);
            }
            None => self.data = Some(value.into_owned()),
        }
        None
    }
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn events_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut parser = EventParser::default();
        pieces.into_iter().flat_map(|piece| parser.push(piece)).collect()
    }

    #[rstest]
    #[case::one("data: a\n\n", &["a"])]
    #[case::without_the_space("data:a\n\n", &["a"])]
    #[case::only_one_space_goes("data:  a\n\n", &[" a"])]
    #[case::windows_lines("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"])]
    #[case::old_mac_lines("data: a\r\rdata: b\r\r", &["a", "b"])]
    #[case::comments_and_other_fields(": ping\n\nevent: x\nid: 1\nretry: 5\ndata: a\n: in between\n\n", &["a"])]
    #[case::several_lines("data: a\ndata: b\ndata\n\n", &["a\nb\n"])]
    #[case::byte_order_mark("\u{feff}data: a\n\ndata: \u{feff}b\n\n", &["a", "\u{feff}b"])]
    #[case::a_longer_name("database: a\n\n", &[])]
    #[case::broken_off("data: a\n\ndata: b\n", &["a"])]
    #[case::nothing("", &[])]
    fn events_are_read(#[case] stream: &str, #[case] expected: &[&str]) {
        assert_eq!(events_of([stream.as_bytes()]), expected);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(events_of([&b"data: a\xffb\n\n"[..]]), ["a\u{fffd}b"]);
    }

    fn split<'a>(stream: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            lines in prop::collection::vec("(data: ?)?[a-zä€🦀 ]{0,6}(\r|\n|\r\n){1,2}", 0..12),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let stream = lines.concat();
            prop_assert_eq!(events_of(split(stream.as_bytes(), &cuts)), events_of([stream.as_bytes()]));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(stream: Vec<u8>, cuts: Vec<usize>) {
            prop_assert_eq!(events_of(split(&stream, &cuts)), events_of([&stream[..]]));
        }
    }
}
