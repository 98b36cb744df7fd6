"""An authority for tests: it makes certificates, and clients can be told to trust it."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any


class Authority:
    """Makes certificates, and is trusted by whoever uses `trust`."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._made = 0
        self.file = folder / "authority.pem"
        self._write(self.file, self._sign("harbour authority", self._key, (), days=1, is_authority=True))

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))

    def issue(self, *names: str, days: int = 1, password: bytes | None = None) -> tuple[Path, Path]:
        """A certificate for these names, and its key; with fewer than one day it has expired."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        self._made += 1
        key = ec.generate_private_key(ec.SECP256R1())
        cert_file, key_file = self._folder / f"cert{self._made}.pem", self._folder / f"key{self._made}.pem"
        self._write(cert_file, self._sign(names[0], key, names, days=days))
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        key_file.touch(0o600)
        key_file.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return cert_file, key_file

    def _sign(self, name: str, key: Any, names: tuple[str, ...], *, days: int, is_authority: bool = False) -> Any:
        import ipaddress

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import NameOID

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        def alternative(text: str) -> x509.GeneralName:
            try:
                return x509.IPAddress(ipaddress.ip_address(text))
            except ValueError:
                return x509.DNSName(text)

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("harbour authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(_usage(is_authority=is_authority), critical=True)  # Python 3.13 wants to see it
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([alternative(one) for one in names]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, path: Path, certificate: Any) -> None:
        from cryptography.hazmat.primitives import serialization

        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _usage(*, is_authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
