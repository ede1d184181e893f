//! An image being made, as a person sees it: bars on a terminal, plain lines elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use crate::engine::{ProgressSink, TransferAmount, TransferProgress};
use crate::exec::{OutputLine, OutputSink};
use crate::image::load::{LoadedImage, SentLayers};
use crate::image::{ImageError, Observer, Step};
use crate::text::error_chain;

use super::super::ui::Ui;

/// Shows what happens on stderr.
pub(in crate::cli) fn observer(ui: Ui) -> Box<dyn Observer> {
    let screen = MultiProgress::new();
    // Nothing at all is shown on what is no terminal, or one whose cursor stays where it is (`TERM=dumb`).
    if screen.is_hidden() {
        Box::new(Lines {
            ui,
            told: Told::default(),
        })
    } else {
        Box::new(Bars::on(screen))
    }
}

fn went_on(error: &ImageError) -> String {
    format!("warning: {}; going on with what is there", error_chain(error))
}

fn sent(loaded: &LoadedImage) -> String {
    let all = loaded.layers;
    match loaded.sent {
        SentLayers::Nothing => "the engine had all of it".to_owned(),
        SentLayers::Missing { layers, bytes } => {
            format!("sent {layers} of {all} layers, {}", HumanBytes(bytes))
        }
        SentLayers::Everything { bytes } => format!("sent all {all} layers, {}", HumanBytes(bytes)),
    }
}

/// What was told already. An engine that does not say which layer it speaks of says the same of every one.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    fn is_new(&mut self, text: &str) -> bool {
        self.0.insert(text.to_owned())
    }
}

/// For logs: what begins and what ends, without anything in between.
struct Lines {
    ui: Ui,
    told: Told,
}

impl Observer for Lines {
    fn begins(&mut self, step: &Step) {
        self.told = Told::default();
        self.ui.say(step);
    }

    fn goes_on(&mut self, _step: &Step, error: &ImageError) {
        self.ui.say(went_on(error));
    }

    fn loaded(&mut self, loaded: &LoadedImage) {
        self.ui.say(format_args!("  {}", sent(loaded)));
    }
}

impl OutputSink for Lines {
    fn line(&mut self, line: OutputLine) {
        self.ui.say(format_args!("  {}", line.text));
    }
}

impl ProgressSink for Lines {
    fn progress(&mut self, progress: TransferProgress) {
        match progress {
            TransferProgress { amount: Some(_), .. } => {}
            TransferProgress {
                layer: Some(layer),
                doing,
                ..
            } => self.ui.say(format_args!("  {layer}: {doing}")),
            TransferProgress { doing, .. } => {
                if self.told.is_new(&doing) {
                    self.ui.say(format_args!("  {doing}"));
                }
            }
        }
    }

    fn wants_amounts(&self) -> bool {
        false
    }
}

/// For a terminal: a bar for each layer that moves, below what is printed.
struct Bars {
    screen: MultiProgress,
    layers: BTreeMap<String, ProgressBar>,
    /// How far the layers are whose names are not told, by their sizes.
    nameless: BTreeMap<u64, u64>,
    told: Told,
    columns: Option<u16>,
}

impl Bars {
    fn on(screen: MultiProgress) -> Self {
        Self {
            screen,
            layers: BTreeMap::new(),
            nameless: BTreeMap::new(),
            told: Told::default(),
            columns: columns(),
        }
    }

    fn say(&self, text: &str) {
        // A terminal that went away is no reason to stop.
        let _ = self.screen.println(text);
    }

    fn clear(&mut self) {
        for bar in std::mem::take(&mut self.layers).into_values() {
            bar.finish_and_clear();
        }
        self.nameless.clear();
        self.told = Told::default();
    }

    fn show(&mut self, layer: &str, doing: &str, amount: Option<TransferAmount>) {
        let bar = self.layers.entry(layer.to_owned()).or_insert_with(|| {
            let bar = self.screen.add(ProgressBar::no_length());
            bar.set_style(style());
            bar.with_prefix(layer.to_owned())
        });
        match amount {
            Some(TransferAmount { done, total }) => {
                bar.set_length(total.unwrap_or(done));
                bar.set_position(done);
            }
            // What moved and has come to something else is whole.
            None if bar.position() > 0 => bar.set_position(bar.length().unwrap_or_default()),
            None => {}
        }
        bar.set_message(with_amount(doing, amount));
    }

    /// Makes room for others: a terminal has few lines, and an image may have many layers.
    fn end(&mut self, layer: &str) {
        if let Some(bar) = self.layers.remove(layer) {
            bar.finish_and_clear();
            self.screen.remove(&bar);
        }
    }

    /// One bar for all layers whose names are not told.
    fn show_together(&mut self, doing: &str, TransferAmount { done, total }: TransferAmount) {
        self.nameless.insert(total.unwrap_or(done), done);
        let together = TransferAmount {
            done: self.nameless.values().sum(),
            total: Some(self.nameless.keys().sum()),
        };
        self.show("all layers", doing, Some(together));
    }

    /// Bars that do not move are drawn again only when they are told to.
    fn fit(&mut self) {
        let columns = columns();
        if columns != self.columns {
            self.columns = columns;
            for bar in self.layers.values() {
                bar.tick();
            }
        }
    }
}

/// The words come last and are cut where the terminal ends, so that a bar never takes two lines.
fn style() -> ProgressStyle {
    let template = "  {prefix:12!} {bar:12} {wide_msg}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn columns() -> Option<u16> {
    rustix::termios::tcgetwinsize(std::io::stderr())
        .ok()
        .map(|size| size.ws_col)
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

    fn loaded(&mut self, loaded: &LoadedImage) {
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
    fn progress(&mut self, progress: TransferProgress) {
        self.fit();
        let is_over = is_over(&progress);
        match (progress.layer, progress.amount) {
            (Some(layer), _) if is_over => self.end(&layer),
            (Some(layer), amount) => self.show(&layer, &progress.doing, amount),
            (None, Some(amount)) => self.show_together(&progress.doing, amount),
            (None, None) => {
                if self.told.is_new(&progress.doing) {
                    self.say(&format!("  {}", progress.doing));
                }
            }
        }
    }
}

/// Whether nothing more comes of a layer, in the engine's words.
fn is_over(progress: &TransferProgress) -> bool {
    match progress.doing.as_str() {
        "Already exists" | "Pull complete" => true,
        "Loading layer" => progress
            .amount
            .is_some_and(|amount| amount.total.is_some_and(|total| amount.done >= total)),
        _ => false,
    }
}

fn with_amount(doing: &str, amount: Option<TransferAmount>) -> String {
    match amount {
        Some(TransferAmount {
            done,
            total: Some(total),
        }) => format!("{doing} {}/{}", HumanBytes(done), HumanBytes(total)),
        Some(TransferAmount { done, total: None }) => format!("{doing} {}", HumanBytes(done)),
        None => doing.to_owned(),
    }
}
