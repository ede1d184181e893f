//! Sends an image, proves it whole, and names it last.

use std::io;

use super::Request;
use super::arrange::{Arrangement, LeaveOut};
use super::catalogue::Catalogue;
use super::compose::Composed;
use super::error::{Flaw, LoadError};
use super::hybrid::{Check, Hybrid};
use crate::engine::{Digest, Engine, EngineError, ProgressSink, TarStream, Trial};

/// An image that was read and arranged.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// What was asked for.
    pub request: &'a Request,
    /// What the image consists of.
    pub catalogue: Catalogue,
    /// How its layers stand, and which are sent.
    pub arrangement: Arrangement,
}

/// An image that is in the engine under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its id there.
    pub id: Digest,
    /// All its layers.
    pub layers: usize,
    /// What was sent of it.
    pub sent: Sent,
}

/// What was sent of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Nothing: the engine had this very image.
    Nothing,
    /// The layers it lacked.
    Missing {
        /// How many.
        layers: usize,
        /// Their size.
        bytes: u64,
    },
    /// All of it, since the engine had nothing of it or could not use what it had.
    Everything {
        /// Its size.
        bytes: u64,
    },
}

/// Sends what is to be sent. Where an image with parts left out does not prove whole, it is removed and everything is
/// sent.
pub async fn deliver(
    engine: &Engine,
    delivery: &Delivery<'_>,
    progress: &mut dyn ProgressSink,
) -> Result<Loaded, LoadError> {
    let parcel = Parcel::pack(engine, delivery).await?;
    let (sent, trial) = parcel.bring(engine, progress).await?;
    let (tagged, ()) = tokio::join!(engine.tag(&parcel.id, &delivery.request.tag), end(trial));
    tagged?;
    Ok(Loaded {
        id: parcel.id,
        layers: delivery.catalogue.layers.len(),
        sent,
    })
}

/// An image that is ready to be sent, and what it will be called by the engine.
struct Parcel<'a> {
    delivery: &'a Delivery<'a>,
    id: Digest,
    diff_ids: Vec<Digest>,
    was_there: bool,
}

impl<'a> Parcel<'a> {
    async fn pack(engine: &Engine, delivery: &'a Delivery<'a>) -> Result<Self, LoadError> {
        let composed = compose(&delivery.catalogue, delivery.request, &delivery.arrangement)?;
        let id = match delivery.arrangement.leave_out {
            LeaveOut::Any => composed.manifest.digest,
            LeaveOut::Prefix | LeaveOut::Nothing => composed.config.digest,
        };
        let diff_ids = composed
            .layers
            .iter()
            .map(|layer| layer.diff_id.clone())
            .collect();
        let was_there = engine.image(id.as_str()).await?.is_some();
        Ok(Self {
            delivery,
            id,
            diff_ids,
            was_there,
        })
    }

    /// Sees to it that the engine has the image, whole and without a name.
    async fn bring(
        &self,
        engine: &Engine,
        progress: &mut dyn ProgressSink,
    ) -> Result<(Sent, Option<Trial>), LoadError> {
        if self.was_there
            && let Ok(trial) = self.prove(engine).await
        {
            return Ok((Sent::Nothing, trial));
        }
        let arrangement = &self.delivery.arrangement;
        if !arrangement.is_complete() {
            match self.send(engine, arrangement, progress).await {
                Ok(trial) => {
                    let (layers, bytes) = (arrangement.send.len(), self.size(arrangement));
                    return Ok((Sent::Missing { layers, bytes }, trial));
                }
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => tracing::info!(%error, "sending the whole image"),
            }
        }
        let complete = arrangement.complete();
        let trial = self.send(engine, &complete, progress).await?;
        let bytes = self.size(&complete);
        Ok((Sent::Everything { bytes }, trial))
    }

    /// Sends it and proves it whole. What does not prove whole is removed, unless it was there before.
    async fn send(
        &self,
        engine: &Engine,
        arrangement: &Arrangement,
        progress: &mut dyn ProgressSink,
    ) -> Result<Option<Trial>, LoadError> {
        let tag = self.delivery.request.tag.to_string();
        let outcome = match engine
            .load(&tag, self.tar(arrangement, Check::Nothing), progress)
            .await
        {
            Ok(()) => self.prove(engine).await,
            Err(error) => Err(error.into()),
        };
        let Err(error) = outcome else { return outcome };
        if !self.was_there
            && let Err(error) = engine.remove_image(self.id.as_str()).await
        {
            tracing::warn!(%error, "an image that is not whole could not be removed");
        }
        if is_final(&error) {
            return Err(error);
        }
        Err(self.damage(arrangement).await.unwrap_or(error))
    }

    /// What is wrong with the layers themselves, which an engine says in its own words or not at all.
    async fn damage(&self, arrangement: &Arrangement) -> Option<LoadError> {
        let tar = self.tar(arrangement, Check::Layers);
        let written = tokio::task::spawn_blocking(move || tar.write_to(&mut io::sink())).await;
        let content = EngineError::Content {
            subject: self.delivery.request.tag.to_string(),
            source: written.ok()?.err()?,
        };
        Some(content.into())
    }

    /// Whether the engine has this image, with these layers, and can use it. A graph driver refuses an image of which
    /// it lacks a layer; containerd takes it and says nothing, so there a container is made from it on trial.
    async fn prove(&self, engine: &Engine) -> Result<Option<Trial>, LoadError> {
        let broken = |flaw| LoadError::Broken {
            tag: self.delivery.request.tag.to_string(),
            flaw,
        };
        match engine.image(self.id.as_str()).await? {
            None => Err(broken(Flaw::Missing)),
            Some(image) if image.diff_ids != self.diff_ids => Err(broken(Flaw::OtherLayers)),
            Some(_) if self.delivery.arrangement.leave_out == LeaveOut::Prefix => Ok(None),
            Some(_) => {
                let trial = engine.try_image(&self.id).await;
                trial.map(Some).map_err(|error| broken(Flaw::NoContainer(error)))
            }
        }
    }

    fn size(&self, arrangement: &Arrangement) -> u64 {
        let layers = &self.delivery.catalogue.layers;
        arrangement.send.iter().map(|at| layers[*at].size).sum()
    }

    fn tar(&self, arrangement: &Arrangement, check: Check) -> TarStream {
        let (catalogue, request) = (self.delivery.catalogue.clone(), self.delivery.request.clone());
        let arrangement = arrangement.clone();
        TarStream::written_by(move |out| {
            let hybrid = Hybrid {
                image: Composed::new(&catalogue, &arrangement.order, &request.labels)?,
                send: arrangement.send.iter().map(|at| &catalogue.layers[*at]).collect(),
                source: &request.source,
                leave_out: arrangement.leave_out,
                check,
            };
            hybrid.write(out)
        })
    }
}

async fn end(trial: Option<Trial>) {
    if let Some(trial) = trial
        && let Err(error) = trial.end().await
    {
        tracing::warn!(%error, "a container that was made on trial could not be removed");
    }
}

fn compose<'a>(
    catalogue: &'a Catalogue,
    request: &Request,
    arrangement: &Arrangement,
) -> Result<Composed<'a>, LoadError> {
    Composed::new(catalogue, &arrangement.order, &request.labels)
        .map_err(|error| LoadError::read(&request.source, error.into()))
}

/// Whether sending more would not help.
fn is_final(error: &LoadError) -> bool {
    matches!(
        error,
        LoadError::Engine(
            EngineError::Content { .. } | EngineError::DiskFull { .. } | EngineError::NoEngine { .. }
        )
    )
}
