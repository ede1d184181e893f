//! The progress of an image build: bars on a terminal, plain lines elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use crate::engine::{ProgressSink, TransferAmount, TransferProgress};
use crate::exec::{OutputLine, OutputSink};
use crate::image::load::{LoadedImage, SentLayers};
use crate::image::{ImageError, ImageObserver, ImageStep};
use crate::text::{counted, error_chain, visible};

use crate::cli::ui::columns;
use crate::cli::{Ui, activity};

/// Shows progress on stderr.
pub(in crate::cli) fn observer(ui: Ui) -> Box<dyn ImageObserver> {
    Box::new(BuildProgress {
        ui,
        activity: None,
        screen: MultiProgress::new(),
        layers: BTreeMap::new(),
        nameless: BTreeMap::new(),
        shown: BTreeSet::new(),
        columns: columns(),
    })
}

fn sent_text(loaded: &LoadedImage) -> String {
    let all = counted(loaded.layers, "layer");
    match loaded.sent {
        SentLayers::Nothing => "the engine has all layers".to_owned(),
        SentLayers::Missing { layers, bytes } => {
            format!("sent {layers} of {all}, {}", HumanBytes(bytes))
        }
        SentLayers::Everything { bytes } => format!("sent {all}, {}", HumanBytes(bytes)),
    }
}

/// On a terminal, a bar for each active layer below the messages. Elsewhere, for logs, the start and end of each operation.
struct BuildProgress {
    ui: Ui,
    /// What the line at the bottom said before the bars took its place.
    activity: Option<String>,
    /// Hidden without a terminal that can move the cursor (also with `TERM=dumb`).
    screen: MultiProgress,
    layers: BTreeMap<String, ProgressBar>,
    /// The progress of layers without a name, by their sizes.
    nameless: BTreeMap<u64, u64>,
    /// Messages that were shown. An engine that does not name the layer repeats the same message for each one.
    shown: BTreeSet<String>,
    columns: Option<u16>,
}

impl BuildProgress {
    fn has_bars(&self) -> bool {
        !self.screen.is_hidden()
    }

    /// Removes the line at the bottom, which would damage the bars.
    fn take_screen(&mut self) {
        if let Some(what) = activity::interrupt() {
            self.activity = Some(what);
        }
    }

    fn say(&mut self, text: impl Display) {
        if self.has_bars() {
            self.take_screen();
            // A closed terminal must not fail the build.
            let _ = self.screen.println(visible(&text.to_string()));
        } else {
            self.ui.say(text);
        }
    }

    fn clear(&mut self) {
        for bar in std::mem::take(&mut self.layers).into_values() {
            bar.finish_and_clear();
        }
        self.nameless.clear();
        self.shown.clear();
    }

    fn show(&mut self, layer: &str, doing: &str, amount: Option<TransferAmount>) {
        self.take_screen();
        let bar = self.layers.entry(layer.to_owned()).or_insert_with(|| {
            let bar = self.screen.add(ProgressBar::no_length());
            bar.set_style(style());
            bar.with_prefix(visible(layer).into_owned())
        });
        match amount {
            Some(TransferAmount { done, total }) => {
                bar.set_length(total.unwrap_or(done));
                bar.set_position(done);
            }
            // A layer that made progress and now does something else is complete.
            None if bar.position() > 0 => bar.set_position(bar.length().unwrap_or_default()),
            None => {}
        }
        bar.set_message(with_amount(&visible(doing), amount));
    }

    /// Removes a bar, because an image may have more layers than a terminal has lines.
    fn end(&mut self, layer: &str) {
        if let Some(bar) = self.layers.remove(layer) {
            bar.finish_and_clear();
            self.screen.remove(&bar);
        }
    }

    /// Shows one bar for all layers without a name.
    fn show_together(&mut self, doing: &str, TransferAmount { done, total }: TransferAmount) {
        self.nameless.insert(total.unwrap_or(done), done);
        let together = TransferAmount {
            done: self.nameless.values().sum(),
            total: Some(self.nameless.keys().sum()),
        };
        self.show("all layers", doing, Some(together));
    }

    /// Redraws all bars after a resize: a bar that does not move is not redrawn by itself.
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

/// The message comes last and is truncated, so that a bar never takes two lines.
fn style() -> ProgressStyle {
    let template = "  {prefix:12!} {bar:12} {wide_msg}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Drop for BuildProgress {
    fn drop(&mut self) {
        self.clear();
        if let Some(what) = self.activity.take() {
            activity::begin(what);
        }
    }
}

impl ImageObserver for BuildProgress {
    fn step_started(&mut self, step: &ImageStep) {
        self.clear();
        self.say(step);
    }

    fn step_skipped(&mut self, _step: &ImageStep, error: &ImageError) {
        self.clear();
        let error = error_chain(error);
        self.say(format_args!(
            "warning: {error}; using the image that the engine has"
        ));
    }

    fn image_loaded(&mut self, loaded: &LoadedImage) {
        self.clear();
        self.say(format_args!("  {}", sent_text(loaded)));
    }
}

impl OutputSink for BuildProgress {
    fn line(&mut self, line: OutputLine) {
        self.say(format_args!("  {}", line.text));
    }
}

impl ProgressSink for BuildProgress {
    fn progress(&mut self, progress: TransferProgress) {
        self.fit();
        let is_over = is_over(&progress);
        let TransferProgress { layer, doing, amount } = progress;
        match (layer, amount) {
            (Some(layer), _) if self.has_bars() && is_over => self.end(&layer),
            (Some(layer), amount) if self.has_bars() => self.show(&layer, &doing, amount),
            (None, Some(amount)) if self.has_bars() => self.show_together(&doing, amount),
            (_, Some(_)) => {}
            (Some(layer), None) => self.say(format_args!("  {layer}: {doing}")),
            (None, None) => {
                if self.shown.insert(doing.clone()) {
                    self.say(format_args!("  {doing}"));
                }
            }
        }
    }

    fn wants_amounts(&self) -> bool {
        self.has_bars()
    }
}

/// Whether the engine reports that a layer is complete.
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
