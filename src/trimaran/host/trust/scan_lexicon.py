"""The words of an attack in many languages, and the ways in which they stand together.

Pure. A row is a language: its stems for a few ideas, such as "ignore", "orders", "earlier". An attack names ideas together, in
whatever order its grammar has: the orders of before are to be forgotten; the person is not to be told; a secret is to be
taken and put somewhere. Each idea alone stands in honest texts. A new language is a new row.

Texts come in lower case with single blanks. A language is tried if one of its small words is in the text, or its script. Only
the surroundings of the rarest idea are looked at. They are short, so time stays linear.
"""

# ruff: noqa: RUF001  (letters of other scripts are what this file is about)

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final, NamedTuple


class Language(NamedTuple):
    """Stems for each idea; alternatives of a regular expression that match from the beginning of a word."""

    signs: str
    """Words that nearly every text has and English has not; or, for a script of its own, one range of letters."""
    ignore: str
    orders: str
    earlier: str
    never: str
    """Empty if `tell` holds the negative forms."""
    tell: str
    person: str
    take: str
    secret: str
    into: str
    is_spaced: bool = True
    """Whether blanks divide words, and words begin with their stem."""


LANGUAGES: Final[dict[str, Language]] = {
    "German": Language(
        "und nicht nichts den dem der das ist für von zu alle du sie auf",
        "ignorier|vergiss|vergess|missacht|verwirf|übergeh",
        "anweisung|instruktion|regel|vorgabe|befehl|anordnung",
        "vorherig|bisherig|obig|vorig|früher|vorher|zuvor|ursprünglich|alle|sämtlich|bekannt",
        "nichts?|nie|niemals|keine?[mnrs]?|ohne",
        "sag|erzähl|verrat|verrät|erwähn|mitteil|mitzuteil|inform|erfahr|bericht|merk|zu (?:sagen|fragen|erwähnen)",
        "benutzer|nutzer|anwender",
        "lies|lest|lesen|sende|schick|übermitt|kopier|häng|gib|trag|füg|übergib|lad|öffne|nenne|zeige",
        "passw[oö]r|kennw[oö]r|zugangsdaten|geheimnis|zugangsschlüssel|(?:privat\\w*|api|ssh)[- ]?schlüssel",
        "feld|parameter|argument|inhalt",
    ),
    "French": Language(
        "le la les vous dans du des une à de pour l'utilisateur tu rien ne pas",
        "ignor|oubli|néglig|ne (?:tiens|tenez) (?:plus|pas) compte",
        "instruction|consigne|directive|règle|ordre",
        "précédent|precedent|antérieur|reçu|initial|donné|d'origine|système|tout",
        "ne|n|sans|jamais",
        "dis|dit|dire|parl|mentionn|révél|informe|prévien|préven|averti|signale",
        "utilisat|l['\u2019]utilisat|usager",
        "lis|lire|lisez|envo|transm|transfèr|mets|mett|joign|joins|ajout|copi|insèr|coll|ouvr",
        "mots? de passe|identifiants|clés? (?:privée|d['\u2019]api|secrète|ssh)|secrets",
        "champ|paramètre|argument|contenu",
    ),
    "Spanish": Language(
        "el los las es del y que una al su sus para todas",
        "ignor|olvid|descart|desobed|haz caso omiso",
        "instrucci|orden|órden|regla|directri|indicaci|norma",
        "anterior|previ|recib|inicia|dad[ao]s|sistema|origina|tod[ao]s",
        "no|sin|nunca",
        "(?:se )?(?:l[oae]s? )?(?:dig|decir|mencion|informe|revel|cuent|avise|comuni|sepa)",
        "usuari|nadie",
        "lee|lea|envía|envíe|enviar|inclu|pon|copi|adjunt|añad|introd|transf|manda|abre|indica",
        "contraseña|credencial|claves? (?:privada|de api|ssh|secreta)|secretos|tokens?",
        "campo|parámetro|argumento|contenido",
    ),
    "Portuguese": Language(
        "os é em que um uma ao não para todas na sem conteúdo arquivo ficheiro",
        "ignore|ignorar|esqueça|esquecer|descart|desconsider|desobede",
        "instruç|instruc|ordens|ordem|regra|diretri|comandos",
        "anterior|previ|prévi|receb|inicia|dad[ao]s|sistema|origina|tod[ao]s",
        "não|nao|nunca|nada|sem",
        "diga|diz|conte|mencion|informe|revel|avis|saib",
        "usuári|usuario|utilizador|ninguém",
        "leia|ler|envi[ea]|coloqu|inclu|copi|anex|adicion|mand|transf|mostr|encaminh|abr",
        "senha|credencia|chaves? (?:privada|de api|ssh|secreta)|segredo|tokens?",
        "campo|parâmetro|parametro|argumento|conteúdo",
    ),
    "Italian": Language(
        "il lo gli di è del della che una al all'utente tutte le la",
        "ignor|dimentic|trascur",
        "istruzion|ordin|regol|direttiv|indicazion|comand",
        "precedent|ricevut|inizial|sistema|originar|tutt",
        "non|senza|mai|nulla",
        "dir[el]|dic|menzion|rivel|informar|avvisar|parlar|comunicar|sapp",
        "utent|all['\u2019]utent|l['\u2019]utent|nessuno",
        "legg|invi|inser|mett|copi|alleg|aggiung|trasmett|inoltr|mand|apr",
        "password|credenzial|chiav[ei] (?:privat|api|ssh|segret)|segret",
        "campo|parametro|argomento|contenuto",
    ),
    "Dutch": Language(
        "het een en van niet dit dat je voor naar aan alle te niets hier deze",
        "negeer|vergeet",
        "instructie|opdracht|regel|aanwijzing|bevel",
        "vorige|eerdere|voorgaande|bovenstaande|alle|oorspronkelijk",
        "niet|niets|nooit|zonder|geen",
        "vertel|zeg|meld|vermeld|informe|noem|weten|te (?:vertellen|zeggen)",
        "gebruiker|niemand",
        "lees|stuur|zend|verzend|zet|voeg|kopieer|plak|geef|upload",
        "wachtwoord|inloggegevens|(?:privé|geheime|api|ssh)[- ]?sleutel",
        "veld|parameter|argument|inhoud",
    ),
    "Swedish": Language(
        "och att det inte till från alla den för på av är",
        "ignorera|bortse|glöm|strunta",
        "instruktion|anvisning|regl|order|uppmaning",
        "tidigare|föregående|ovanstående|alla|ursprunglig",
        "inte|inget|ingenting|aldrig|utan",
        "berätta|säg|nämn|informera|meddela|avslöja|att (?:berätta|säga|nämna)",
        "användar|ingen",
        "läs|skicka|sänd|kopiera|lägg|klistra|bifoga|öppna",
        "lösenord|inloggningsuppgift|(?:privata|api|ssh)[- ]?nyck|hemlighet",
        "fält|parameter|argument|innehåll",
    ),
    "Danish or Norwegian": Language(
        "og ikke til fra alle det af av på er den",
        "ignorer|se bort|glem|overse",
        "instruks|instruktion|anvisning|regl|ordre",
        "tidligere|foregående|forrige|ovenstående|alle",
        "ikke|intet|ingenting|aldri|uden|uten",
        "fortæl|fortel|sig|si|nævn|nevn|informer|oplys|avslør|afslør",
        "bruger|bruker",
        "læs|les|kopier|indsæt|sett|legg|læg|vedhæft|åbn|åpne|send",
        "adgangskode|passord|kodeord|(?:private?|api|ssh)[- ]?n[øo](?:gl|kk)|hemmelig",
        "felt|parameter|argument|indhold|innhold",
    ),
    "Finnish": Language(
        "ja ei älä se kaikki tämä ennen sitten että",
        "ohita|unohda|jätä huomiotta|älä noudata",
        "ohje|määräy|käsky|sään",
        "aiem|edelli|kaikki|aikaisem|yllä",
        "älä|ei|koskaan",
        "kerro|mainitse|ilmoita|paljasta|sano",
        "käyttäj|kenellekään",
        "lue|lähetä|kopioi|liitä|avaa|lisää|siirrä",
        "salasan|tunnuks|yksityi\\w+ avai|api-avai|salaisuu",
        "kenttä|kentä|parametri|argument|sisäl",
    ),
    "Polish": Language(
        "na nie się jest że wszystkie przed dla ten",
        "ignoruj|zignoruj|zapomnij|pomiń",
        "instrukcj|polece|reguł|zasad|wskazów|rozkaz",
        "poprzedni|wcześniejsz|wszystk|powyższ|dotychczas",
        "nie|nic|nigdy|bez",
        "mów|powiedz|wspomin|informuj|powiadam|zdradz|ujawni",
        "użytkownik|nikomu",
        "przeczytaj|odczytaj|wyślij|prześlij|skopiuj|wklej|dołącz|umieść|wpisz|podaj|otwórz",
        "hasł|dane logowania|poświadcze|klucz\\w* (?:prywat|api|ssh)|sekret|tajn",
        "pol[aeu]|parametr|argument|zawartość|treść",
    ),
    "Czech or Slovak": Language(
        "na je se sa že všechny všetky předchozí uživateli pred před pre",
        "ignoruj|zapome|zabudni|nedbej|přehlíž|prehliad",
        "pokyn|instrukc|příkaz|príkaz|pravid",
        "předchozí|predch|dosavadn|vše|výše|vyššie",
        "",
        "neříkej|nesděluj|nezmiňuj|neinformuj|neprozra|nehovor|nepovedz|nespomína|nic neříkej",
        "uživatel|používateľ|užívateľ|nikomu",
        "přečti|prečítaj|pošli|odešli|zkopíruj|skopíruj|vlož|přilož|prilož|otevři|otvor",
        "hesl|hesiel|přihlašovací|prihlasovac|soukrom\\w+ klíč|súkromn\\w+ kľúč|tajn|tajemství",
        "pol[eai]|parametr|argument|obsah",
    ),
    "Romanian": Language(
        "și nu este în pe cu toate din",
        "ignor|uită",
        "instrucțiun|instructiun|ordin|regul|indicați",
        "anterioar|preceden|toate|de mai sus|inițial",
        "nu|fără|niciodată",
        "(?:îi )?(?:spune|menționa|informa\\b|informez|dezvălui|zice|anunța)",
        "utilizator|nimănui",
        "citește|trimite|copiază|pune|adaugă|include|deschide|lipește|transmite",
        "parol|credențial|chei\\w* (?:priva|api|ssh|secret)|secret",
        "câmp|parametru|argument|conținut",
    ),
    "Hungarian": Language(
        "az és nem egy hogy minden korábbi előző majd",
        "hagyd figyelmen kívül|hagyja figyelmen kívül|felejts|ne vedd figyelembe|mellőz",
        "utasítás|szabály|parancs|instrukció",
        "korábbi|előző|minden|összes|fenti",
        "ne|nem|semmi|soha|nélkül",
        "mond|szól|említ|tájékoztat|árul|jelez",
        "felhasználó|senki",
        "olvas|küld|másol|írd|tedd|illeszd|csatol|nyisd",
        "jelsz[óa]|privát kulcs|hitelesítő|tit[ko]",
        "mező|paraméter|argumentum|tartalm",
    ),
    "Turkish": Language(
        "ve bir bu için tüm önce önceki kullanıcıya kullanıcının",
        "yok ?say|görmezden gel|unut|dikkate alma",
        "talimat|komut|yönerge|kural|emir",
        "önceki|tüm|bütün|yukarıdaki|eski",
        "",
        "söyleme|bahsetme|bildirme|haber verme|anlatma|belli etme",
        "kullanıcı|kimse",
        "oku|gönder|kopyala|yaz|ekle|yapıştır|ilet|koy|aktar",
        "şifre|parola|özel anahtar|kimlik bilgi|gizli",
        "parametre|alan|argüman|içeri",
    ),
    "Vietnamese": Language(
        "và của các không hãy cho trước mọi này đó",
        "bỏ qua|quên|phớt lờ|không tuân",
        "hướng dẫn|chỉ dẫn|lệnh|chỉ thị|quy tắc",
        "trước|mọi|tất cả|ở trên",
        "không|đừng|chớ",
        "nói|báo|cho biết|tiết lộ|nhắc|thông báo",
        "người dùng",
        "đọc|gửi|sao chép|chép|dán|thêm|mở|đưa|chuyển",
        "mật khẩu|khóa (?:riêng|bí mật|api)|thông tin đăng nhập|bí mật",
        "tham số|trường|nội dung",
    ),
    "Indonesian or Malay": Language(
        "dan yang ke ini semua jangan untuk dari sebelum isi dengan",
        "abaikan|lupakan|hiraukan|jangan ikuti",
        "instruksi|perintah|arahan|aturan|petunjuk",
        "sebelum|semua|seluruh|di atas|terdahulu",
        "jangan|tanpa|tidak",
        "beri ?tahu|memberi ?tahu|katakan|bilang|sebut|ungkap|laporkan",
        "pengguna|siapa",
        "baca|kirim|salin|masukkan|tempel|lampirkan|buka|sertakan|taruh|unggah",
        "kata sandi|sandi|kredensial|kunci (?:pribadi|api|privat|ssh|rahasia)|rahasia",
        "parameter|kolom|argumen|isi",
    ),
    "Ukrainian": Language(
        "[іїєґ]",
        "ігнор|проігнор|забуд|знехтуй|не зважай",
        "інструкц|вказівк|наказ|команд|правил",
        "попередн|усі|всі|раніше|наведен",
        "не|ні|нічого",
        "каж|говор|повідом|згад|розповід|розказ",
        "користувач|нікому",
        "прочита|надішли|відправ|передай|скопіюй|встав|відкрий|додай",
        "парол|облікові дані|приватн\\w+ ключ|секрет|токен",
        "параметр|поле|аргумент|вміст",
    ),
    "Russian": Language(
        "[а-я]",
        "игнорир|проигнорир|забуд|не (?:следуй|соблюдай|обращай внимания)",
        "инструкц|указан|правил|команд|промпт|приказ",
        "предыдущ|прежн|прошл|изначальн|полученн|системн|все|выше",
        "не|никогда|ничего",
        "говор|сообща|рассказ|упомина|показыва|скаж|сообщ",
        "пользовател|никому",
        "прочита|прочти|отправ|переда|встав|скопиру|приложи|полож|укаж|покаж|открой|перешли",
        "парол|(?:закрыт|приватн)\\w+ ключ|учётн\\w+ данн|секрет|токен",
        "параметр|аргумент|пол[ея]|содержим",
    ),
    "Greek": Language(
        "[α-ω]",
        "αγνόησ|αγνοήσ|ξέχασ|ξεχάσ|παράβλεψ",
        "οδηγί|εντολ|κανόν",
        "προηγούμεν|όλες|παραπάνω|αρχικ",
        "μην|χωρίς|τίποτα|ποτέ",
        "πεις|πείτε|αναφέρ|ενημερώ|αποκαλύ",
        "χρήστη|κανέναν",
        "διάβασε|στείλ|αντέγραψ|βάλ|πρόσθεσ|άνοιξ",
        "κωδικ|συνθηματικ|ιδιωτικ\\w+ κλειδ|διαπιστευτήρι|μυστικ",
        "πεδίο|παράμετρο|όρισμα|περιεχόμεν",
    ),
    "Arabic": Language(
        "[\u0620-\u064a]",
        "تجاهل|انس |لا تتبع|اهمل",
        "تعليمات|أوامر|اوامر|توجيهات|قواعد",
        "سابق|جميع|كل|أعلاه",
        "لا|دون|بدون|عدم",
        "تخبر|إخبار|اخبار|تقل|تذكر|إبلاغ|إعلام|علم",
        "مستخدم|لأحد",
        "اقرأ|أرسل|ارسل|انسخ|ضع|أضف|مرر|افتح",
        "كلم(?:ة|ات) (?:ال)?مرور|المفتاح الخاص|بيانات الاعتماد|أسرار",
        "معامل|حقل|محتو|وسيط|معلمة",
        is_spaced=False,
    ),
    "Persian": Language(
        "[پچژگکی]",
        "نادیده بگیر|فراموش کن|توجه نکن",
        "دستور|راهنمایی|قوانین|فرمان",
        "قبلی|همه|پیشین|بالا",
        "",
        "نگو|اطلاع نده|خبر نده|بدون اطلاع",
        "کاربر|کسی",
        "بخوان|بفرست|ارسال|کپی|قرار بده|اضافه|باز کن|بنویس",
        "رمز|گذرواژه|کلید خصوصی|اطلاعات ورود",
        "پارامتر|فیلد|محتو",
        is_spaced=False,
    ),
    "Hebrew": Language(
        "[א-ת]",
        "התעלמ?|תתעלם|שכח|אל תציית",
        "הוראות|פקודות|כללים|הנחיות",
        "קודמ|כל |לעיל",
        "אל|לא|בלי",
        "תגיד|תספר|לומר|לספר|תזכיר|ליידע|תיידע|תגלה",
        "משתמש|לאף אחד",
        "קרא|שלח|העתק|הכנס|צרף|הדבק|פתח|העבר",
        "סיסמ|מפתח פרטי|אישורי|סוד",
        "פרמטר|שדה|ארגומנט|תוכן",
        is_spaced=False,
    ),
    "Hindi": Language(
        "[\u0905-\u0939]",
        "अनदेखा|नज़रअंदाज|नजरअंदाज|भूल जा|उपेक्षा",
        "निर्देश|आदेश|नियम",
        "पिछले|सभी|पहले|पूर्व|ऊपर",
        "मत|नहीं|बिना|न ",
        "बता|कह|सूचित|ज़िक्र|उल्लेख",
        "उपयोगकर्ता|यूज़र|किसी",
        "पढ़|भेज|कॉपी|डाल|जोड़|खोल|लिख",
        "पासवर्ड|निजी कुंजी|गुप्त|क्रेडेंशियल",
        "पैरामीटर|फ़ील्ड|फील्ड|सामग्री",
        is_spaced=False,
    ),
    "Thai": Language(
        "[\u0e01-\u0e2e]",
        "ไม่ต้องสนใจ|เพิกเฉย|ละเว้น|ลืม|ไม่สนใจ",
        "คำสั่ง|คำแนะนำ|กฎ",
        "ก่อนหน้า|ทั้งหมด|ข้างต้น",
        "อย่า|ไม่|ห้าม",
        "บอก|แจ้ง|กล่าวถึง|เปิดเผย",
        "ผู้ใช้",
        "อ่าน|ส่ง|คัดลอก|ใส่|แนบ|เปิด",
        "รหัสผ่าน|คีย์ส่วนตัว|ความลับ|ข้อมูลรับรอง",
        "พารามิเตอร์|ฟิลด์|เนื้อหา",
        is_spaced=False,
    ),
    "Japanese": Language(
        "[\u3041-\u30fa]",
        "無視|忘れ|従わない",
        "指示|命令|指令|ルール|規則",
        "以前|これまで|上記|すべて|全て|前の|先の",
        "",
        "言わ[なず]|知らせ[なず]|伝え[なず]|話さ[なず]|教え[なず]|明かさ|報告し[なず]|通知し[なず]|せずに|内緒",
        "ユーザ|利用者",
        "読[みんめ]|送[りっ]|送信|コピー|入れ|貼り付|添付|開[いき]|渡",
        "パスワード|秘密鍵|認証情報|環境変数",
        "パラメータ|引数|フィールド|内容",
        is_spaced=False,
    ),
    "Korean": Language(
        "[가-힣]",
        "무시|잊어|따르지",
        "지시|명령(?!행|줄|어)|지침|규칙",
        "이전|모든|위의|앞의|기존",
        "",
        "말하지|알리지|언급하지|알려 ?주지|보고하지|모르게|알려서는",
        "사용자|유저",
        "읽|보내|전송|복사|넣|첨부|전달|붙여",
        "비밀번호|암호|개인 ?키|비공개 키|자격 ?증명|환경 ?변수",
        "인자|매개변수|파라미터|필드|내용",
        is_spaced=False,
    ),
    "Chinese": Language(
        "[\u4e00-\u9fff]",
        "忽略|无视|忘记|忘掉|忽視|無視|不要再?(?:遵守|遵循|理会)|不必(?:遵守|遵循)",
        "指令|指示|说明|提示|规定|规则|要求|命令|设定|說明|規則",
        "之前|以前|先前|所有|上述|前面|此前|一切|全部|以上",
        "不要|别|勿|无需|不得|不能|不必|別|無需|不让",
        "告诉|告知|通知|提醒|透露|知道|告訴|提及|发现|察觉",
        "用户|用戶|使用者",
        "读取|讀取|读出|发送|发给|发到|上传|放进|放入|放到|填入|写入|附上|传入|传给|發送|打开|复制",
        "密码|口令|私钥|密钥|凭证|凭据|密碼|令牌",
        "参数|字段|内容|參數|內容",
        is_spaced=False,
    ),
}

_KEY_FILE: Final = r"\.(?:ssh|aws|env|netrc|gnupg|kube|npmrc|git-credentials)\b|\bid_(?:rsa|ed25519|ecdsa)\b"
_AWAY: Final = r"https?://|\w@[\w-]{1,63}\.|`\w+`"
_MOST: Final = 3  # of one kind; a fourth says nothing new


class _Ideas(NamedTuple):
    """The patterns of one language, and how far apart its ideas may stand."""

    sign: re.Pattern[str]
    ignore: re.Pattern[str]
    orders: re.Pattern[str]
    earlier: re.Pattern[str]
    silence: re.Pattern[str]
    person: re.Pattern[str]
    take: re.Pattern[str]
    secret: re.Pattern[str]
    into: re.Pattern[str]
    reach: int


@cache
def _ideas_of(name: str) -> _Ideas:
    """Compiled when a text of the language first comes: all of them are a third of what importing the scan takes."""
    language = LANGUAGES[name]
    edge = r"\b" if language.is_spaced else ""
    gap = r"(?:\W{1,3}\w{1,20}){0,4}?\W{1,3}" if language.is_spaced else ".{0,10}?"

    def idea(stems: str) -> re.Pattern[str]:
        return re.compile(f"{edge}(?:{stems})")

    never, tell = f"(?:{language.never}){edge}", f"(?:{language.tell})"
    silence = rf"{never}{gap}{edge}{tell}|{tell}\w{{0,12}}{gap}{edge}{never}" if language.never else tell
    return _Ideas(
        sign=re.compile(
            language.signs if _has_script(language) else rf"(?<!\S)(?:{'|'.join(language.signs.split())})(?!\S)"
        ),
        ignore=idea(language.ignore),
        orders=idea(language.orders),
        earlier=idea(language.earlier),
        silence=idea(silence),
        person=idea(language.person),
        take=idea(language.take),
        secret=idea(language.secret),
        into=re.compile(f"{edge}(?:{language.into})|{_AWAY}"),
        reach=50 if language.is_spaced else 25,
    )


def _has_script(language: Language) -> bool:
    return language.signs.startswith("[")


_WORDS: Final = {
    name: frozenset(language.signs.split()) for name, language in LANGUAGES.items() if not _has_script(language)
}
_SCRIPTS: Final = {name: re.compile(language.signs) for name, language in LANGUAGES.items() if _has_script(language)}
_KEY_FILES: Final = re.compile(_KEY_FILE)
_OUTWARD: Final = re.compile(_AWAY)


@lru_cache(maxsize=2)
def _languages_of(text: str) -> tuple[_Ideas, ...]:
    words = frozenset(text.split())
    names = [name for name, signs in _WORDS.items() if not words.isdisjoint(signs)]
    if not text.isascii():
        names += [name for name, signs in _SCRIPTS.items() if signs.search(text) is not None]
    return tuple(map(_ideas_of, names))


def _together(text: str, rarest: re.Pattern[str], others: tuple[re.Pattern[str], ...], reach: int) -> Iterator[str]:
    """The surroundings of the rarest idea in which all the others stand, too."""
    count = 0
    for match in rarest.finditer(text):
        start, end = max(0, match.start() - reach), match.end() + reach
        if all(other.search(text, start, end) for other in others):
            yield text[start:end]
            count += 1
            if count == _MOST:
                return


def find_overrides(text: str) -> Iterator[str]:
    """Where earlier orders are to be forgotten."""
    for ideas in _languages_of(text):
        yield from _together(text, ideas.ignore, (ideas.orders, ideas.earlier), ideas.reach)


def find_secrecy(text: str) -> Iterator[str]:
    """Where the person is not to be told."""
    for ideas in _languages_of(text):
        yield from _together(text, ideas.person, (ideas.silence,), ideas.reach)


def find_secrets(text: str) -> Iterator[str]:
    """Where a file of keys, or a secret, is to be taken and put somewhere."""
    for ideas in _languages_of(text):
        around = 2 * ideas.reach
        yield from _together(text, _KEY_FILES, (ideas.take, ideas.into, ideas.sign), around)
        yield from _together(text, ideas.secret, (ideas.take, _OUTWARD, ideas.sign), around)
        yield from _together(text, ideas.secret, (ideas.take, ideas.into, ideas.person, ideas.sign), around)
