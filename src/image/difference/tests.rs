//! Differences between layers, as data: each file is a path, what it holds, its mode and its time.

use rstest::rstest;

use super::*;

type File = (&'static str, &'static str, u32, u64);

const BEFORE: [File; 2] = [("etc/a", "one", 0o644, 1), ("etc/b", "two", 0o644, 1)];

#[rstest]
#[case::time(&[("etc/a", "one", 0o644, 2), ("etc/b", "two", 0o644, 1)], &[("etc/a", LayerFileChange::Time)])]
#[case::content(&[("etc/a", "ONE", 0o644, 2), ("etc/b", "two", 0o644, 1)], &[("etc/a", LayerFileChange::Content)])]
#[case::mode(&[("etc/a", "one", 0o755, 1), ("etc/b", "two", 0o644, 1)], &[("etc/a", LayerFileChange::Attributes)])]
#[case::gone_and_new(
    &[("etc/a", "one", 0o644, 1), ("etc/c", "two", 0o644, 1)],
    &[("etc/b", LayerFileChange::OnlyInFirst), ("etc/c", LayerFileChange::OnlyInSecond)]
)]
fn what_differs_is_named(#[case] after: &[File], #[case] expected: &[(&str, LayerFileChange)]) {
    let LayerDifference::Yes {
        count,
        some,
        only_times,
    } = compare(&listed(&layer(&BEFORE)), &listed(&layer(after)))
    else {
        panic!("the layers were not compared");
    };
    let found: Vec<(&str, LayerFileChange)> =
        some.iter().map(|file| (file.path.as_str(), file.found)).collect();
    assert_eq!((count, found.as_slice()), (expected.len(), expected));
    assert_eq!(
        only_times,
        expected.iter().all(|(_, found)| *found == LayerFileChange::Time)
    );
}

#[test]
fn no_more_files_are_named_than_a_person_reads() {
    let many: Vec<(String, u64)> = (0..50).map(|number| (format!("f{number}"), number)).collect();
    let at = |offset: u64| {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, time) in &many {
            add(&mut tar, (path, "", 0o644, time + offset));
        }
        listed(&tar.into_inner().unwrap())
    };
    let LayerDifference::Yes { count, some, .. } = compare(&at(0), &at(1)) else {
        panic!("the layers were not compared");
    };
    assert_eq!((count, some.len()), (50, NAMED));
}

#[test]
fn only_the_layers_asked_for_are_listed_and_no_member_breaks_the_reading() {
    let (wanted, other) = (layer(&BEFORE), layer(&[("x", "y", 0o644, 1)]));
    let mut image = tar::Builder::new(Vec::new());
    for (name, bytes) in [("a/layer.tar", &wanted), ("b/layer.tar", &other)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        image.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    add(&mut image, ("manifest.json", &"{}".repeat(2000), 0o644, 0));
    let found = read_listings(
        &mut image.into_inner().unwrap().as_slice(),
        &BTreeSet::from([Digest::sha256(&wanted)]),
    )
    .unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [&Digest::sha256(&wanted)]);
    assert_eq!(
        found[&Digest::sha256(&wanted)].keys().collect::<Vec<_>>(),
        ["etc/a", "etc/b"]
    );
}

fn listed(layer: &[u8]) -> LayerListing {
    let mut image = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(layer.len() as u64);
    image.append_data(&mut header, "layer.tar", layer).unwrap();
    let digest = Digest::sha256(layer);
    let wanted = BTreeSet::from([digest]);
    let mut found = read_listings(&mut image.into_inner().unwrap().as_slice(), &wanted).unwrap();
    found.remove(&digest).unwrap()
}

fn layer(files: &[File]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for file in files {
        add(&mut tar, *file);
    }
    tar.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, (path, content, mode, time): (&str, &str, u32, u64)) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    tar.append_data(&mut header, path, content.as_bytes()).unwrap();
}
