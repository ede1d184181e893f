//! SVG elements, one after the other.

use std::fmt::{Display, Write as _};

/// An SVG document in the making. Numbers have one decimal.
pub(super) struct SvgText(String);

impl SvgText {
    /// Opens a document of this size with these further attributes. `label` is what screen readers say.
    pub(super) fn open(width: f64, height: f64, attributes: &str, label: &str) -> Self {
        Self(format!(
            "<svg {attributes} viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(label)
        ))
    }

    /// Adds markup as it is.
    pub(super) fn raw(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// A rectangle by its upper left corner and its size.
    pub(super) fn rect(&mut self, corner: [f64; 2], size: [f64; 2], title: &str) {
        let ([x, y], [width, height]) = (corner, size);
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
            escape(title)
        ));
    }

    /// A line between two points.
    pub(super) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let ([x1, y1], [x2, y2]) = (from, to);
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    /// A filled circle.
    pub(super) fn circle(&mut self, class: &str, centre: [f64; 2], radius: f64) {
        let [x, y] = centre;
        self.add(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>\n"
        ));
    }

    /// A text whose baseline begins at this point, or has its middle or end there by its class.
    pub(super) fn text(&mut self, class: &str, at: [f64; 2], text: &str) {
        let [x, y] = at;
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
            escape(text)
        ));
    }

    /// Closes the document.
    pub(super) fn close(mut self) -> String {
        self.0.push_str("</svg>");
        self.0
    }

    fn add(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{element}");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
