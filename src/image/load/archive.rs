//! Images in tar files, as `docker save` writes them.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use tar::Archive;

use super::cache::LayerCache;
use super::catalogue::{Catalogue, Encoding, Layer};
use super::listing::{self, Bytes, Flawed, Members, normal};
use super::remembered::Remembered;
use super::source::EachLayer;
use super::spool::Spool;

/// How much is read at once.
const CHUNK: usize = 256 * 1024;

/// Reads what the image in this file consists of. In a plain file that costs only its headers; a packed one is read to
/// its end, and what is needed of it goes to the spool.
pub(super) fn catalogue(path: &Path, cache: &LayerCache, spool: Spool) -> Result<Catalogue, Flawed> {
    let file = Arc::new(File::open(path)?);
    let remembered = Remembered::of(path, &file, cache)?;
    if let Some(catalogue) = remembered.find() {
        return Ok(catalogue);
    }
    let catalogue = match opened(&file)? {
        Opened::Plain(reader) => {
            let mut archive = Archive::new(reader);
            let members = archive
                .entries_with_seek()
                .and_then(|all| Members::read(all, None))?;
            listing::catalogue(&members, &Bytes::Archive(file.clone()))?
        }
        Opened::Packed(stream) => catalogue_of_stream(stream, Some(spool))?,
    };
    remembered.keep(&catalogue);
    Ok(catalogue)
}

/// Reads what the image consists of from a stream. The layers that go to the spool can be read from there.
pub(super) fn catalogue_of_stream(stream: impl Read, mut spool: Option<Spool>) -> Result<Catalogue, Flawed> {
    let mut archive = Archive::new(stream);
    let members = archive
        .entries()
        .and_then(|all| Members::read(all, spool.as_mut()))?;
    let bytes = spool.map_or(Bytes::Stream, |spool| Bytes::Spool(spool.into_file()));
    listing::catalogue(&members, &bytes)
}

/// What a file holds, unpacked.
pub(super) fn stream(path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(match opened(&File::open(path)?)? {
        Opened::Plain(file) => Box::new(BufReader::with_capacity(CHUNK, file)),
        Opened::Packed(stream) => stream,
    })
}

/// Hands over the bytes of these layers as they come by. Each has a name in the stream.
pub(super) fn read_members(
    stream: impl Read,
    mut waiting: Vec<(&str, &Layer)>,
    each: &mut EachLayer<'_>,
) -> io::Result<()> {
    for entry in Archive::new(stream).entries()? {
        let mut entry = entry?;
        let name = normal(&entry.path()?);
        let wanted = waiting.iter().position(|(wanted, _)| *wanted == name);
        if entry.header().entry_type().is_file()
            && let Some(wanted) = wanted
        {
            let (_, layer) = waiting.swap_remove(wanted);
            each(layer, &mut entry)?;
        }
    }
    match waiting.first() {
        None => Ok(()),
        Some((name, _)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("`{name}` is gone from it"),
        )),
    }
}

enum Opened {
    Plain(File),
    Packed(Box<dyn Read>),
}

fn opened(file: &File) -> io::Result<Opened> {
    let mut file = file.try_clone()?;
    let mut beginning = Vec::new();
    (&mut file).take(2).read_to_end(&mut beginning)?;
    file.rewind()?;
    Ok(match Encoding::of(&beginning) {
        Encoding::Plain => Opened::Plain(file),
        Encoding::Gzip => {
            let file = BufReader::with_capacity(CHUNK, file);
            Opened::Packed(Box::new(BufReader::with_capacity(
                CHUNK,
                MultiGzDecoder::new(file),
            )))
        }
    })
}
