//! An image being made, as a person sees it: bars on a terminal, plain lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use crate::engine::{Progress, ProgressSink};
use crate::exec::{OutputLine, OutputSink};
use crate::image::load::{Loaded, Sent};
use crate::image::{ImageError, Observer, Step};

use super::super::error::chain;
use super::super::ui::Ui;

/// Shows what happens on stderr.
pub(super) fn observer(ui: Ui) -> Box<dyn Observer> {
    if std::io::stderr().is_terminal() {
        Box::new(Bars::default())
    } else {
        Box::new(Lines(ui))
    }
}

fn went_on(error: &ImageError) -> String {
    format!("warning: {}; going on with what is there", chain(error))
}

fn sent(loaded: &Loaded) -> String {
    let all = loaded.layers;
    match loaded.sent {
        Sent::Nothing => "the engine had all of it".to_owned(),
        Sent::Missing { layers, bytes } => format!("sent {layers} of {all} layers, {}", HumanBytes(bytes)),
        Sent::Everything { bytes } => format!("sent all {all} layers, {}", HumanBytes(bytes)),
    }
}

/// For logs: what begins and what ends, without anything in between.
struct Lines(Ui);

impl Observer for Lines {
    fn begins(&mut self, step: &Step) {
        self.0.say(step);
    }

    fn goes_on(&mut self, _step: &Step, error: &ImageError) {
        self.0.say(went_on(error));
    }

    fn loaded(&mut self, loaded: &Loaded) {
        self.0.say(format_args!("  {}", sent(loaded)));
    }
}

impl OutputSink for Lines {
    fn line(&mut self, line: OutputLine) {
        self.0.say(format_args!("  {}", line.text));
    }
}

impl ProgressSink for Lines {
    fn progress(&mut self, progress: Progress) {
        if progress.amount.is_some() {
            return;
        }
        let layer = progress.layer.map(|layer| layer + ": ").unwrap_or_default();
        self.0.say(format_args!("  {layer}{}", progress.doing));
    }
}

/// For a terminal: a bar for each layer that moves, below what is printed.
#[derive(Default)]
struct Bars {
    screen: MultiProgress,
    layers: BTreeMap<String, ProgressBar>,
}

impl Bars {
    fn say(&self, text: &str) {
        // A terminal that went away is no reason to stop.
        let _ = self.screen.println(text);
    }

    fn clear(&mut self) {
        for bar in std::mem::take(&mut self.layers).into_values() {
            bar.finish_and_clear();
        }
    }

    fn bar(&mut self, layer: &str) -> &ProgressBar {
        self.layers.entry(layer.to_owned()).or_insert_with(|| {
            let bar = self.screen.add(ProgressBar::no_length());
            bar.set_style(style());
            bar.with_prefix(layer.to_owned())
        })
    }
}

fn style() -> ProgressStyle {
    let template = "  {prefix:14} {msg:20} {bar:30} {bytes}/{total_bytes}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Observer for Bars {
    fn begins(&mut self, step: &Step) {
        self.clear();
        self.say(&step.to_string());
    }

    fn goes_on(&mut self, _step: &Step, error: &ImageError) {
        self.clear();
        self.say(&went_on(error));
    }

    fn loaded(&mut self, loaded: &Loaded) {
        self.clear();
        self.say(&format!("  {}", sent(loaded)));
    }
}

impl OutputSink for Bars {
    fn line(&mut self, line: OutputLine) {
        self.say(&format!("  {}", line.text));
    }
}

impl ProgressSink for Bars {
    fn progress(&mut self, progress: Progress) {
        let Some(layer) = &progress.layer else {
            return self.say(&format!("  {}", progress.doing));
        };
        let bar = self.bar(layer);
        bar.set_message(progress.doing);
        if let Some(amount) = progress.amount {
            bar.set_position(amount.done);
            if let Some(total) = amount.total {
                bar.set_length(total);
            }
        }
    }
}
