//! The key exchange: `snow`, with the random bytes of the driver as private key.

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::{Zeroize, Zeroizing};

use super::packets::{ACCEPT_MESSAGE_LEN, EphemeralKey, Initial, KEY_LEN, Parameters};
use crate::Role;
use crate::header::VERSION;
use crate::protection::{ExchangeSecret, Seal};

/// The private part of an ephemeral key: 32 random bytes.
pub(super) type PrivateKey = Zeroizing<[u8; KEY_LEN]>;

const PATTERN: &str = "Noise_NN_25519_ChaChaPoly_SHA256";

/// The prologue that both sides hash before the first message, followed by the version, the client's number and the
/// encryption that it wants. With it and the client's key all of Initial is covered but its token.
const PROLOGUE: &[u8] = b"Effective Cross Layer";

/// The public key that belongs to `private`: the client's first message.
pub(super) fn first_message(private: &PrivateKey) -> EphemeralKey {
    // It does not depend on what is hashed before it.
    begin(private, 0, Seal::default()).1
}

/// The server's side: reads the first message and gives the second one, in which `parameters` travel encrypted. `None`
/// when the first message is no key that can be used.
pub(super) fn respond(
    private: &PrivateKey,
    initial: &Initial,
    parameters: &Parameters,
) -> Option<([u8; ACCEPT_MESSAGE_LEN], ExchangeSecret)> {
    let mut state = build(private, initial.number, initial.seal, Role::Server);
    state.read_message(&initial.key, &mut []).ok()?;
    let mut message = [0; ACCEPT_MESSAGE_LEN];
    let len = state.write_message(&parameters.emit(), &mut message).ok()?;
    (len == message.len()).then(|| (message, secret(&mut state)))
}

/// The client's side: reads the second message. `None` when it is no answer to the first one. The state is made again
/// for each message, so a forged one leaves nothing behind.
pub(super) fn finish(
    private: &PrivateKey,
    number: u32,
    seal: Seal,
    second: &[u8; ACCEPT_MESSAGE_LEN],
) -> Option<(Parameters, ExchangeSecret)> {
    let mut state = begin(private, number, seal).0;
    let mut payload = [0; Parameters::LEN];
    let len = state.read_message(second, &mut payload).ok()?;
    let parameters = Parameters::parse(&payload).filter(|_| len == payload.len())?;
    Some((parameters, secret(&mut state)))
}

fn begin(private: &PrivateKey, number: u32, seal: Seal) -> (HandshakeState, EphemeralKey) {
    let mut state = build(private, number, seal, Role::Client);
    // snow wants room for a tag, though the first message has none.
    let mut message = [0; KEY_LEN + 16];
    let len = state.write_message(&[], &mut message).expect("the first message is the key alone");
    debug_assert_eq!(len, KEY_LEN);
    (state, std::array::from_fn(|i| message[i]))
}

fn build(private: &PrivateKey, number: u32, seal: Seal, role: Role) -> HandshakeState {
    let params: NoiseParams = PATTERN.parse().expect("snow knows the pattern");
    let prologue = [PROLOGUE, &[VERSION], &number.to_be_bytes(), &[seal as u8]].concat();
    let builder = Builder::with_resolver(params, Box::new(Resolver(private.clone())));
    let state = builder.prologue(&prologue).and_then(|builder| match role {
        Role::Client => builder.build_initiator(),
        Role::Server => builder.build_responder(),
    });
    state.expect("NN needs no key but the ephemeral ones")
}

fn secret(state: &mut HandshakeState) -> ExchangeSecret {
    let (mut first, mut second) = state.dangerously_get_raw_split();
    let mut split = Zeroizing::new([0; 64]);
    split[..32].copy_from_slice(&first);
    split[32..].copy_from_slice(&second);
    first.zeroize();
    second.zeroize();
    ExchangeSecret::new(&split, state.get_handshake_hash())
}

/// snow's algorithms, and a private key in the place of its random source.
pub(super) struct Resolver(pub(super) PrivateKey);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Random bytes for one key. A second key of one exchange would be the same, so there is none.
struct Once(Option<PrivateKey>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let key = self.0.take().filter(|key| key.len() == dest.len()).ok_or(Error::Rng)?;
        dest.copy_from_slice(&*key);
        Ok(())
    }
}
