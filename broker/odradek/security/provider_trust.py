"""Which servers with HTTPS are accepted as identity providers: the TLS context of requests for keys and tokens."""

import ssl


def tls_context(trust: tuple[str | None, ...]) -> ssl.SSLContext:
    """A client's context. :param trust: location, type, password and certificates (PEM) of a trust store; all None: the
    certificates of this system. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    location, kind, password, certificates = trust
    if location is None and certificates is None:
        context.load_default_certs()
        return context
    from odradek.security.contexts import trust as let_trust
    from odradek.security.keystores import StoreSettings, pem, read_trust_store

    store = StoreSettings(
        location, kind, password, None, certificates, None, lambda part: f"sasl.jaas.config: ssl.truststore.{part}"
    )
    let_trust(context, "".join(pem(certificate).decode() for certificate in read_trust_store(store)))
    return context
