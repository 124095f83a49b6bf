//! placeholder until the models are in
