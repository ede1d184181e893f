//! The picture of a run in the README: what the demo prints on a terminal, from its first iteration to its end.

use anstyle_svg::{Term, WIN10_CONSOLE};
use regex_lite::Regex;

use crate::need;
use crate::reference::check;
use crate::support::ralph::{Place, finish, program};
use crate::support::skip;

const COLUMNS: usize = 100;

/// What differs from demo to demo, and what the picture shows in its place.
const VARYING: [(&str, &str); 4] = [
    // The end of an action is printed only when it took more than a second.
    (r"(?m)^  \+ .*\n", ""),
    (r"\b[0-9]+\.[0-9] s\b", "0.6 s"),
    (r"\b[0-9a-f]{40}\b", "3f9c2ab41d07c55e8a1b6f0e92d47c8831ab5e60"),
    (r"\br[0-9a-z]{8}\b", "r7k2m9xq4"),
];

#[test]
fn the_picture_of_a_run_is_up_to_date() {
    let script = need!(skip::program("script"));
    let place = Place::bare();
    let (script, ralph) = (script.display(), program());
    let on_terminal = format!("stty cols {COLUMNS}; {} demo --keep demo", ralph.display());
    let ended = finish(&mut place.shell(&format!("{script} -qec '{on_terminal}' /dev/null")));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let here = place.repo().display().to_string();
    let printed = ended.stdout.replace('\r', "").replace(&here, "/srv");
    let (_, iterations) = printed.split_once("\x1b[1miteration 1").unwrap();
    let (iterations, _) = iterations.split_once("\n\n").unwrap();
    let mut shown = format!("\x1b[1miteration 1{iterations}");
    for (pattern, stable) in VARYING {
        shown = Regex::new(pattern)
            .unwrap()
            .replace_all(&shown, stable)
            .into_owned();
    }
    check("docs/images/run.svg", &picture(&shown));
}

/// The red, green and yellow of the palette, and brighter ones that are easy to read on black.
const COLOURS: [(&str, &str); 3] = [
    ("#C50F1F", "#FF7B72"),
    ("#13A10E", "#3FB950"),
    ("#C19C00", "#D29922"),
];

fn picture(printed: &str) -> String {
    let mut svg = Term::new()
        .palette(WIN10_CONSOLE)
        .render_svg(&wrapped(printed, COLUMNS));
    for (dull, bright) in COLOURS {
        svg = svg.replace(dull, bright);
    }
    // Without it, a page that shows the picture smaller would cut it.
    let size = Regex::new(r#"^<svg width="([0-9]+)px" height="([0-9]+)px""#).unwrap();
    size.replace(&svg, r#"<svg width="$1" height="$2" viewBox="0 0 $1 $2""#)
        .into_owned()
}

/// The text as a terminal of this width shows it: a line that is longer goes on in the next one.
fn wrapped(text: &str, columns: usize) -> String {
    let mut shown = String::new();
    let (mut column, mut in_escape) = (0, false);
    for c in text.chars() {
        if column == columns && !in_escape && !['\n', '\x1b'].contains(&c) {
            shown.push('\n');
            column = 0;
        }
        shown.push(c);
        match c {
            '\n' => column = 0,
            '\x1b' => in_escape = true,
            _ if in_escape => in_escape = c != 'm',
            _ => column += 1,
        }
    }
    shown
}

#[test]
fn a_long_line_goes_on_in_the_next_one() {
    assert_eq!(wrapped("abcd\nabcde", 4), "abcd\nabcd\ne");
    assert_eq!(wrapped("\x1b[31mabcd\x1b[0m\nab", 4), "\x1b[31mabcd\x1b[0m\nab");
}
