//! Sends an image, proves it whole, and names it last.

use std::io;

use super::Request;
use super::arrange::{Arrangement, LeaveOut};
use super::catalogue::Catalogue;
use super::compose::Composed;
use super::error::{Flaw, LoadError};
use super::hybrid::{Check, Hybrid};
use super::portion::{self, Portion, Turn};
use crate::engine::{Digest, Engine, EngineError, ProgressSink, TarStream, TrialContainer};

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
        let Delivery {
            request,
            catalogue,
            arrangement,
        } = delivery;
        let composed = Composed::new(catalogue, &arrangement.order, &request.labels)
            .map_err(|error| LoadError::read(&request.source, error.into()))?;
        let id = id_of(&composed, arrangement.leave_out);
        let diff_ids = composed
            .layers
            .iter()
            .map(|layer| layer.diff_id.clone())
            .collect();
        let was_there = engine.image(&id.to_string()).await?.is_some();
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
    ) -> Result<(Sent, Option<TrialContainer>), LoadError> {
        if self.was_there
            && let Ok(trial) = self.prove(engine).await
        {
            return Ok((Sent::Nothing, trial));
        }
        let arrangement = &self.delivery.arrangement;
        let portions = portion::cut(arrangement, &self.delivery.catalogue.layers);
        if !arrangement.is_complete() || portions.len() > 1 {
            match self.send(engine, portions, progress).await {
                Ok(trial) => return Ok((self.sent(arrangement), trial)),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => tracing::info!(%error, "sending the whole image"),
            }
        }
        let complete = arrangement.complete();
        let trial = self
            .send(engine, vec![Portion::whole(&complete)], progress)
            .await?;
        Ok((self.sent(&complete), trial))
    }

    /// Sends it and proves it whole. What does not prove whole is removed, unless it was there before.
    async fn send(
        &self,
        engine: &Engine,
        portions: Vec<Portion>,
        progress: &mut dyn ProgressSink,
    ) -> Result<Option<TrialContainer>, LoadError> {
        let tag = self.delivery.request.tag.to_string();
        let lower: Result<Vec<Digest>, _> = portions[..portions.len() - 1]
            .iter()
            .map(|portion| self.id(portion))
            .collect();
        let lower = lower?;
        let tars = portions.iter().map(|portion| self.tar(portion, Check::Nothing));
        let outcome = match portion::send(engine, &tag, tars.collect(), progress).await {
            Ok(()) => self.prove(engine).await,
            Err(error) => Err(error.into()),
        };
        portion::remove(engine, &lower).await;
        let Err(error) = outcome else { return outcome };
        if !self.was_there
            && let Err(error) = engine.remove_image(&self.id.to_string()).await
        {
            tracing::warn!(%error, "an image that is not whole could not be removed");
        }
        if is_final(&error) {
            return Err(error);
        }
        Err(self.damage(&portions).await.unwrap_or(error))
    }

    /// What is wrong with the layers themselves, which an engine says in its own words or not at all.
    async fn damage(&self, portions: &[Portion]) -> Option<LoadError> {
        let tars: Vec<_> = portions
            .iter()
            .map(|portion| self.tar(portion, Check::Layers))
            .collect();
        let written = tokio::task::spawn_blocking(move || {
            let mut tars = tars.into_iter();
            tars.try_for_each(|tar| tar(Turn::alone()).write_to(&mut io::sink()))
        });
        let written = written.await;
        let content = EngineError::Content {
            subject: self.delivery.request.tag.to_string(),
            source: written.ok()?.err()?,
        };
        Some(content.into())
    }

    /// Whether the engine has this image, with these layers, and can use it. A graph driver refuses an image of which
    /// it lacks a layer; containerd takes it and says nothing, so there a container is made from it on trial.
    async fn prove(&self, engine: &Engine) -> Result<Option<TrialContainer>, LoadError> {
        let broken = |flaw| LoadError::Broken {
            tag: self.delivery.request.tag.to_string(),
            flaw,
        };
        match engine.image(&self.id.to_string()).await? {
            None => Err(broken(Flaw::Missing)),
            Some(image) if image.diff_ids != self.diff_ids => Err(broken(Flaw::OtherLayers)),
            Some(_) if self.delivery.arrangement.leave_out == LeaveOut::Prefix => Ok(None),
            Some(_) => {
                let trial = engine.try_image(&self.id).await;
                trial.map(Some).map_err(|error| broken(Flaw::NoContainer(error)))
            }
        }
    }

    fn sent(&self, arrangement: &Arrangement) -> Sent {
        let layers = &self.delivery.catalogue.layers;
        let bytes = arrangement.send.iter().map(|at| layers[*at].size).sum();
        if arrangement.is_complete() {
            return Sent::Everything { bytes };
        }
        let layers = arrangement.send.len();
        Sent::Missing { layers, bytes }
    }

    /// What the engine will call a portion.
    fn id(&self, portion: &Portion) -> Result<Digest, LoadError> {
        let Delivery {
            request,
            catalogue,
            arrangement,
        } = self.delivery;
        let composed = compose(catalogue, request, portion, &self.id);
        let composed = composed.map_err(|error| LoadError::read(&request.source, error.into()))?;
        Ok(id_of(&composed, arrangement.leave_out))
    }

    fn tar(&self, portion: &Portion, check: Check) -> impl FnOnce(Turn) -> TarStream + Send + use<> {
        let (catalogue, request) = (self.delivery.catalogue.clone(), self.delivery.request.clone());
        let leave_out = self.delivery.arrangement.leave_out;
        let (portion, whole) = (portion.clone(), self.id.clone());
        move |turn| {
            TarStream::written_by(move |out| {
                let hybrid = Hybrid {
                    image: compose(&catalogue, &request, &portion, &whole)?,
                    send: portion.send.iter().map(|at| &catalogue.layers[*at]).collect(),
                    source: &request.source,
                    leave_out,
                    check,
                };
                hybrid.write(out, turn)
            })
        }
    }
}

async fn end(trial: Option<TrialContainer>) {
    if let Some(trial) = trial
        && let Err(error) = trial.remove().await
    {
        tracing::warn!(%error, "a container that was made on trial could not be removed");
    }
}

/// The image of a portion. Only the last one is the whole image.
fn compose<'a>(
    catalogue: &'a Catalogue,
    request: &Request,
    portion: &Portion,
    whole: &Digest,
) -> Result<Composed<'a>, serde_json::Error> {
    if portion.order.len() == catalogue.layers.len() {
        Composed::new(catalogue, &portion.order, &request.labels)
    } else {
        Composed::portion(catalogue, &portion.order, whole)
    }
}

fn id_of(image: &Composed, leave_out: LeaveOut) -> Digest {
    match leave_out {
        LeaveOut::Any => image.manifest.digest.clone(),
        LeaveOut::Prefix | LeaveOut::Nothing => image.config.digest.clone(),
    }
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
