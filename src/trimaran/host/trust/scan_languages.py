"""What an attack says, in languages other than English: a table of patterns for the scan, and nothing that acts.

Pure. They run on the lower-case text with single blanks, letters as they are: folding letters would spoil those that are not
Latin. Each pattern names two things together, such as an order and the instructions that are to be forgotten, because each
by itself stands in honest texts. The languages are those of most published attacks; a gap in a pattern is bounded, and the
end of a word is taken once and kept, so that time stays linear.
"""

from __future__ import annotations

import re
from typing import Final

LIFTED_ELSEWHERE: Final = re.compile(
    r"(?:vorherigen|bisherigen|obigen|ursprünglichen) (?:anweisungen|instruktionen|regeln|vorgaben)\b[^.\n]{0,20}\bgelten nicht"
    r"|\b(?:regeln|vorgaben|einschränkungen|sperren|restricciones|reglas|normas|restrições|regras|règles|restrictions|consignes|politique)\b[^.\n]{0,25}"
    r"\b(?:sind|wurden|han sido|quedan|están|foram|estão|sont|ont été|est)\b[^.\n]{0,15}\b(?:aufgehoben|außer kraft|ungültig|abgeschaltet|anulad|levantad|eliminad|removid|suspens|desativad|annulé|levé|supprimé|désactivé)\w{0,20}+"
    r"|(?:правила|ограничения|запреты)[^.\n]{0,20}(?:отменен|снят|отключен|не действу)\w{0,20}+|(?:管理员权限|最高权限|所有限制)[^。\n]{0,30}(?:不需要|无需|不必|解除|取消)"
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

TALK_ELSEWHERE: Final = re.compile(
    r"(?:bisherige\w{0,20}+|vollständige\w{0,20}+|gesamte\w{0,20}+) (?:chat|gespräch|unterhaltung)\w{0,20}+[^.\n]{0,60}(?:anhäng|anfüg|an\b|mitschick|übergeb)"
    r"|(?:envie|envía|envoie|incluye|inclua|joignez)\w{0,20}+[^.\n]{0,30}(?:histórico da conversa|historial de (?:la )?conversación|historique de (?:la )?conversation)"
    r"|(?:отправь|перешли|передай)\w{0,20}+[^.\n]{0,20}(?:переписк|историю (?:чата|сообщений|диалога))|(?:发送|上传|附上)[^。\n]{0,10}(?:聊天记录|对话(?:记录|历史))"
)

# What one of these languages has, and most English texts do not; a quick look before the patterns.
_SIGNS: Final = re.compile(
    r"[^\x00-\x7f]|ignor(?:ier|a\b|ez?\b)|negeer|zignoruj|nutzer|usuario|utilisat|utente|anweisung|instrucciones|consignes|inhalt|campo|argumento"
    r"|\b(?:lies|pour|para)\b|regeln|reglas|regras|règles|sistema|système|geheim|\blee\b|\bleia\b|hinweis|wichtig|assistent|asistente|mots? de passe|senha|contrase"
)


def in_other_languages(text: str) -> bool:
    """Whether the patterns of this file are worth trying on a text in lower case."""
    return _SIGNS.search(text) is not None
