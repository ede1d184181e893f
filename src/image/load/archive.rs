//! Images in tar archives, as `docker save` writes them.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use tar::Archive;

use super::contents::{ImageContents, ImageLayer, LayerEncoding};
use super::listing::{self, ArchiveError, ArchiveMembers, normalize};
use super::source::LayerSink;
use super::spool::Spool;

/// How much is read at once.
pub(super) const CHUNK: usize = 256 * 1024;

/// Reads an archive's config and layers. A plain tar costs only its headers. A compressed one is read to its end, and
/// layers that may have to be sent go to the spool.
pub(super) fn read_file(path: &Path, spool: Spool) -> Result<ImageContents, ArchiveError> {
    let file = Arc::new(File::open(path)?);
    match open(&file)? {
        OpenArchive::Plain(reader) => {
            let mut archive = Archive::new(reader);
            let members = archive
                .entries_with_seek()
                .and_then(|all| ArchiveMembers::read(all, None))?;
            listing::contents(&members, Some(&file))
        }
        OpenArchive::Gzip(stream) => read_stream(stream, Some(spool)),
    }
}

/// Reads an image's config and layers from a tar stream. Layers in the spool can be read again from there.
pub(super) fn read_stream(
    stream: impl Read,
    mut spool: Option<Spool>,
) -> Result<ImageContents, ArchiveError> {
    let mut archive = Archive::new(stream);
    let members = archive
        .entries()
        .and_then(|all| ArchiveMembers::read(all, spool.as_mut()))?;
    let file = spool.map(Spool::into_file);
    listing::contents(&members, file.as_ref())
}

/// The uncompressed content of an archive.
pub(super) fn stream(path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match open(&File::open(path)?)? {
        OpenArchive::Plain(file) => Box::new(BufReader::with_capacity(CHUNK, file)),
        OpenArchive::Gzip(stream) => stream,
    })
}

/// Passes the bytes of these layers to `each` in the order of the stream. Each layer comes with its member name.
pub(super) fn read_members(
    stream: impl Read,
    mut waiting: Vec<(&str, &ImageLayer)>,
    each: &mut LayerSink<'_>,
) -> io::Result<()> {
    for entry in Archive::new(stream).entries()? {
        let mut entry = entry?;
        let name = normalize(&entry.path()?);
        let wanted = waiting.iter().position(|(wanted, _)| *wanted == name);
        if entry.header().entry_type().is_file()
            && let Some(wanted) = wanted
        {
            let (_, layer) = waiting.swap_remove(wanted);
            each(layer, &mut |out| copy(&mut entry, out))?;
        }
    }
    match waiting.first() {
        None => Ok(()),
        Some((name, _)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its layer `{name}` has disappeared"),
        )),
    }
}

/// Copies to the end in large chunks, and returns the number of bytes. With the few kilobytes of [`io::copy`] the system
/// calls cost more than the bytes.
pub(super) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    io::copy(&mut BufReader::with_capacity(CHUNK, from), to)
}

enum OpenArchive {
    Plain(File),
    Gzip(Box<dyn Read>),
}

fn open(file: &File) -> io::Result<OpenArchive> {
    let mut file = file.try_clone()?;
    let mut beginning = Vec::new();
    (&mut file).take(2).read_to_end(&mut beginning)?;
    file.rewind()?;
    Ok(match LayerEncoding::detect(&beginning) {
        LayerEncoding::Plain => OpenArchive::Plain(file),
        LayerEncoding::Gzip => {
            let decoder = MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file));
            OpenArchive::Gzip(Box::new(BufReader::with_capacity(CHUNK, decoder)))
        }
    })
}
