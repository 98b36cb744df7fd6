"""What an attack says, in languages other than English: a table of patterns for the scan, and nothing that acts.

Pure. They run on the lower-case text with single blanks, letters as they are: folding letters would spoil those that are not
Latin. Each pattern names two things together, such as an order and the instructions that are to be forgotten, because each
by itself stands in honest texts. The languages are those of most published attacks; a gap in a pattern is bounded, and the
end of a word is taken once and kept, so that time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

OVERRIDE_ELSEWHERE: Final = re.compile(
    r"(?:ignorier|vergiss|vergesst|vergessen sie|missacht|verwirf)\w{0,20}+\b[^.\n]{0,40}\b"
    r"(?:vorherig|bisherig|obig|vorig|früher|vorher|zuvor|ursprünglich|bekannt)\w{0,20}+"
    r"|(?:vorherigen|bisherigen|obigen|ursprünglichen) (?:anweisungen|instruktionen|regeln|vorgaben)\b[^.\n]{0,20}\bgelten nicht"
    r"|(?:ignor|olvid|descart|desconsider|esquec|desobede)\w{0,20}+\b[^.\n]{0,30}\b(?:instrucciones|instruções|instrucoes|órdenes|reglas|regras|directrices"
    r"|diretrizes|indicaciones|ordens)\b[^.\n]{0,20}\b(?:anterior\w{0,20}+|previ[ao]s|prévias|recib\w+|receb\w+|inicia\w+|dad[ao]s|del? sistema|do sistema|origina\w+)"
    r"|(?:ignore[rz]?|oublie[rz]?|(?:ne )?tene?z? (?:plus|pas) compte (?:de|des))\b[^.\n]{0,25}\b(?:instructions|consignes|directives|règles|ordres)\b"
    r"[^.\n]{0,20}\b(?:précédent\w{0,20}+|precedent\w{0,20}+|antérieur\w{0,20}+|reçu\w{0,20}+|initial\w{0,20}+|donné\w{0,20}+|d'origine|système)"
    r"|\b(?:regeln|vorgaben|einschränkungen|sperren|restricciones|reglas|normas|restrições|regras|règles|restrictions|consignes|politique)\b[^.\n]{0,25}"
    r"\b(?:sind|wurden|han sido|quedan|están|foram|estão|sont|ont été|est)\b[^.\n]{0,15}\b(?:aufgehoben|außer kraft|ungültig|abgeschaltet|anulad|levantad|eliminad|removid|suspens|desativad|annulé|levé|supprimé|désactivé)\w{0,20}+"
    r"|(?:правила|ограничения|запреты)[^.\n]{0,20}(?:отменен|снят|отключен|не действу)\w{0,20}+|(?:管理员权限|最高权限|所有限制)[^。\n]{0,30}(?:不需要|无需|不必|解除|取消)"
    r"|ignor\w{0,20}+ (?:tutte )?le istruzioni precedenti|negeer (?:alle )?(?:vorige|eerdere) instructies"
    r"|(?:игнорир|забуд|не (?:следуй|соблюдай|обращай внимания на))\w{0,20}+\b[^.\n]{0,25}(?:предыдущ|прежн|прошл|изначальн|полученн|системн)\w{0,20}+"
    r"[^.\n]{0,12}(?:инструкц|указан|правил|команд|промпт)|zignoruj (?:wszystkie )?poprzednie (?:instrukcje|polecenia)"
    r"|(?:忽略|无视|忘记|忘掉|不要(?:再)?(?:遵守|遵循|理会)|不必(?:遵守|遵循))[^。\n]{0,12}(?:指令|指示|说明|提示|规定|规则|要求|命令|设定)"
    r"|(?:以前|これまで|上記)の(?:すべての)?(?:指示|命令)を無視|이전(?:의)? (?:모든 )?(?:지시|명령|지침)[^.]{0,6}무시"
)

SECRECY_ELSEWHERE: Final = re.compile(
    r"(?:sag|erzähl|verrat|erwähn)\w{0,20}+ (?:es |das |dies )?(?:dem|der) (?:be)?nutzer\w{0,20}+ (?:nichts|nicht|nie)"
    r"|ohne (?:es )?(?:dem|den|die|der) (?:be)?nutzer\w{0,20}+ (?:davon )?zu (?:sagen|informieren|erwähnen|fragen)"
    r"|(?:an|be)?(?:wender|nutzer)\w{0,20}+ (?:soll|darf|muss)\w{0,20}+\b[^.\n]{0,20}\b(?:nichts|nicht|nie)\b[^.\n]{0,20}\b(?:erfahr|wiss|merk|seh)"
    r"|no (?:se )?(?:lo |le )?(?:digas|diga|menciones|mencione|informes|reveles|cuentes) [^.\n]{0,20}(?:al usuario|a nadie)"
    r"|sin (?:decírselo|decirselo|avisar|informar|que lo sepa) (?:al|el) usuario"
    r"|não (?:diga|conte|mencione|informe|revele) [^.\n]{0,20}(?:ao (?:usuário|utilizador)|a ninguém)|sem (?:avisar|informar|que) o (?:usuário|utilizador)"
    r"|ne (?:le |en )?(?:dis|dites|parle[sz]?|mentionne[sz]?|révèle[sz]?) (?:pas |rien )[^.\n]{0,20}à (?:l['\u2019]utilisat|personne)"
    r"|(?:sans (?:le dire à|prévenir|informer)|à l['\u2019]insu de) l['\u2019]utilisat|non (?:dire|dirlo|menzionare|rivelare) [^.\n]{0,20}all['\u2019]utente"
    r"|не (?:говори|сообща|рассказыва|упомина|показыва)\w{0,20}+ [^.\n]{0,20}(?:пользовател|никому)|nie (?:mów|wspominaj|informuj)\w{0,20}+ [^.\n]{0,20}użytkownik"
    r"|(?:втайне|тайно) от пользовател|(?:不要|别|勿|无需|不得|不能)(?:告诉|告知|通知|提醒|透露给|让)[^。\n]{0,4}用户"
    r"|(?:ユーザー?)(?:に|には)[^。\n]{0,8}(?:言わ|知らせ|伝え|話さ)(?:な|ず)|사용자(?:에게|한테)[^.\n]{0,10}(?:말하지|알리지|언급하지)"
)

_MODELS: Final = (
    r"(?:(?:alle |die |den )?ki[- ]?(?:agent|assistent|modell|system)\w{0,20}+|(?:den|die|alle|der|das|jeden) (?:assistent|sprachmodell)\w{0,20}+"
    r"|(?:l['\u2019]|les? |aux? |des )?(?:assistants?\b|agents? (?:d['\u2019])?ia\b|mod[eè]les? d['\u2019]ia\b|ia\b)"
    r"|(?:el |la |los |al? |para )?(?:asistentes?\b|agentes? de ia\b|modelos? de (?:ia|lenguaje|linguagem)\b)|(?:o |ao |para )?assistentes?\b"
    r"|ассистент\w{0,20}+|помощник\w{0,20}+|языков\w+ модел\w+|нейросет\w{0,20}+|ии-\w+)"
)
ADDRESSED_ELSEWHERE: Final = re.compile(
    r"(?:(?:hinweis|anweisung|nachricht|notiz|wichtig|achtung|befehl)\w{0,20}+ (?:für|an)|\ban) "
    + _MODELS
    + r"\s?[:,-]"
    r"|\b(?:systemnachricht|mensaje del? sistema|mensagem d[eo] sistema|message (?:du )?système|системное сообщение|系统(?:消息|提示|通知))\s?[:\uff1a]"
    r"|(?:instructions?|note|message|consigne|attention|avis)s? (?:pour|à|aux?) (?:l['\u2019]attention (?:de|des) )?"
    + _MODELS
    + r"\s?[:,-]|à? ?l['\u2019]attention des? "
    + _MODELS
    + r"\s?[:,-]|(?:nota|aviso|mensaje|mensagem|instrucci[oó]n(?:es)?|instruç(?:ão|ões)|atenci[oó]n|atenção|importante),? (?:para |al? |aos? )?"
    + _MODELS
    + r"\s?[:,-]|(?:внимание|важно|указани[ея]|сообщение|инструкци[яи]),? (?:для )?"
    + _MODELS
    + r"\s?[:,-]|(?:注意|提示|说明|指令|致)[^。\n]{0,3}(?:ai|助手|模型|智能体|大模型)\s?[:\uff1a,\uff0c]"
)

_KEYS: Final = (
    r"(?:\b(?:geheimnis|zugangsschlüssel|passwort)\w{0,20}+|\b(?:secretos|segredos|secrets du|jetons|historial completo)\b|токен\w{0,20}+|секрет\w{0,20}+|\.ssh\b|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws\b|\.env\b|\.netrc\b|\.gnupg\b|\.kube\b|/etc/(?:passwd|shadow)\b|(?:ssh|api)[- ]?(?:key|schlüssel|clave|chave|ключ|密钥)\w{0,20}+"
    r"|\b(?:zugangsdaten|passwör?t\w{0,20}+|contraseñas?|claves? (?:privadas?|de api)|senhas?|chaves? (?:privadas?|de api)|mots? de passe|clés? (?:privées?|d['\u2019]api))"
    r"|парол[ьяией]\w{0,20}+|закрыт\w+ ключ|密码|口令|私钥|密钥)"
)
_TAKE: Final = (
    r"(?:\b(?:übermittle|übermitteln|nenne|zeige)\w{0,20}+\b|\b(?:añad\w+|introduce|indica|transfira|mostre|transfér\w+|indique\w{0,20}+)\b|полож\w{0,20}+|укаж\w{0,20}+|покаж\w{0,20}+|\b(?:lies|lest|lesen|hänge|sende|schick|übergib|gib|füge|trage|kopier|lade)\w{0,20}+\b|\b(?:lee|leer|lea|envía|enviar|envíe|incluye|incluir|pon|copia|adjunta)\b"
    r"|\b(?:leia|ler|envie|coloque|inclua|copie|anexe|adicione)\b|\b(?:lis|lisez|lire|envoie[rz]?|envoyez|envoyer|mets|mettez|joignez|joins|ajoutez)\b"
    r"|прочита\w{0,20}+|прочти|отправ\w{0,20}+|переда\w{0,20}+|вставь\w{0,20}+|скопиру\w{0,20}+|приложи\w{0,20}+|读取|讀取|读出|发送|发给|上传|放进|放入|放到|填入|写入|附上)"
)
_INTO: Final = (
    r"(?:\b(?:feld|argument|parameter|inhalt)\w{0,20}+\b|\b(?:campo|parámetro|parâmetro|argumento|contenido|conteúdo)\b|\b(?:champ|paramètre|contenu)\b"
    r"|параметр\w{0,20}+|аргумент\w{0,20}+|поле\w{0,20}+|содержим\w{0,20}+|参数|字段|内容|https?://|\w@[a-z0-9-]{1,63}\.|`\w+`)"
)
_SECRET: Final = re.compile(_KEYS)
_SECRET_GIVEN: Final = re.compile(
    f"{_TAKE}[^\n]{{0,60}}?{_KEYS}[^\n]{{0,80}}?{_INTO}|{_TAKE}[^\n]{{0,60}}?{_INTO}[^\n]{{0,60}}?{_KEYS}"
    f"|{_KEYS}[^\n]{{0,40}}?{_TAKE}[^\n]{{0,40}}?{_INTO}"
)
_TALK_GIVEN: Final = re.compile(
    r"(?:bisherige\w{0,20}+|vollständige\w{0,20}+|gesamte\w{0,20}+) (?:chat|gespräch|unterhaltung)\w{0,20}+[^.\n]{0,60}(?:anhäng|anfüg|an\b|mitschick|übergeb)"
    r"|(?:envie|envía|envoie|incluye|inclua|joignez)\w{0,20}+[^.\n]{0,30}(?:histórico da conversa|historial de (?:la )?conversación|historique de (?:la )?conversation)"
    r"|(?:отправь|перешли|передай)\w{0,20}+[^.\n]{0,20}(?:переписк|историю (?:чата|сообщений|диалога))|(?:发送|上传|附上)[^。\n]{0,10}(?:聊天记录|对话(?:记录|历史))"
)
_AROUND: Final = 200  # characters before and behind a secret; no part of the pattern spans more


def find_secrets(text: str) -> Iterator[re.Match[str]]:
    """Where keys, passwords or the conversation are to be given away. Looks around secrets only, so that time stays linear."""
    end = 0
    for secret in _SECRET.finditer(text):
        if secret.start() >= end:
            end = secret.end() + _AROUND
            yield from _SECRET_GIVEN.finditer(text, max(0, secret.start() - _AROUND), end)
    yield from _TALK_GIVEN.finditer(text)


# What one of these languages has, and most English texts do not; a quick look before the patterns.
_SIGNS: Final = re.compile(
    r"[^\x00-\x7f]|ignor(?:ier|a\b|ez?\b)|negeer|zignoruj|nutzer|usuario|utilisat|utente|anweisung|instrucciones|consignes|inhalt|campo|argumento"
    r"|\b(?:lies|pour|para)\b|regeln|reglas|regras|règles|sistema|système|geheim|\blee\b|\bleia\b|hinweis|wichtig|assistent|asistente|mots? de passe|senha|contrase"
)


def in_other_languages(text: str) -> bool:
    """Whether the patterns of this file are worth trying on a text in lower case."""
    return _SIGNS.search(text) is not None
