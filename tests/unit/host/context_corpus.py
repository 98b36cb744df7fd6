"""Texts of every kind that a model reads from tools: written or generated here, the same in each run.

`TEXTS` maps a name to a text. The estimate of tokens is held to its promise on each of them.
"""

from __future__ import annotations

import base64
import inspect
import json
import random
import re
import string
import uuid
from typing import Any

PROSE = {
    "English": "The harbour wakes before the town does. At five the first boats come in, and by six the buyers stand on the "
    "quay with their hands in their pockets. Nobody talks much. A crate of mackerel changes hands for less than it is worth, "
    "because the weather will turn and everyone knows it. Later, when the ferry has left, children look for crabs between "
    "the stones and the gulls argue over whatever the men have thrown away.",
    "German": "Der Hafen erwacht vor der Stadt. Um fünf Uhr kommen die ersten Boote herein, und um sechs stehen die Händler "
    "am Kai und reden wenig. Eine Kiste Makrelen wechselt für weniger Geld den Besitzer, als sie wert wäre, weil das Wetter "
    "umschlagen wird. Später suchen die Kinder zwischen den Steinen nach Krebsen, während die Möwen über die Abfälle streiten.",
    "French": "Le port se réveille avant la ville. À cinq heures les premiers bateaux rentrent, et à six heures les acheteurs "
    "attendent déjà sur le quai, les mains dans les poches. Une caisse de maquereaux se vend moins cher qu'elle ne vaut, parce "
    "que le temps va changer. Plus tard, les enfants cherchent des crabes entre les pierres.",
    "Spanish": "El puerto se despierta antes que la ciudad. A las cinco llegan los primeros barcos y a las seis los compradores "
    "esperan en el muelle con las manos en los bolsillos. Una caja de caballa se vende por menos de lo que vale, porque el "
    "tiempo va a cambiar y todos lo saben. Más tarde los niños buscan cangrejos entre las piedras.",
    "Polish": "Port budzi się wcześniej niż miasto. O piątej wpływają pierwsze łodzie, a o szóstej kupcy stoją już na nabrzeżu "
    "z rękami w kieszeniach. Skrzynia makreli zmienia właściciela za mniej, niż jest warta, bo pogoda się zmieni i wszyscy o tym "
    "wiedzą. Później dzieci szukają krabów między kamieniami.",
    "Turkish": "Liman şehirden önce uyanır. Saat beşte ilk tekneler gelir, altıda alıcılar elleri ceplerinde rıhtımda bekler. "
    "Bir kasa uskumru değerinden ucuza el değiştirir, çünkü hava dönecek ve bunu herkes bilir. Daha sonra çocuklar taşların "
    "arasında yengeç arar, martılar artıklar için kavga eder.",
    "Finnish": "Satama herää ennen kaupunkia. Viideltä tulevat ensimmäiset veneet, ja kuudelta ostajat seisovat laiturilla kädet "
    "taskuissa. Kukaan ei puhu paljon. Laatikollinen makrillia vaihtaa omistajaa halvemmalla kuin se on arvoltaan, koska sää "
    "muuttuu ja kaikki tietävät sen.",
    "Hungarian": "A kikötő a város előtt ébred. Öt órakor befutnak az első hajók, és hatkor a vevők már zsebre dugott kézzel állnak "
    "a rakparton. Egy láda makréla kevesebbért cserél gazdát, mint amennyit ér, mert fordul az idő, és ezt mindenki tudja.",
    "Czech": "Přístav se probouzí dříve než město. V pět hodin připlouvají první lodě a v šest už kupci stojí na nábřeží s rukama "
    "v kapsách. Bedna makrel mění majitele za méně, než kolik má cenu, protože se počasí změní a všichni to vědí.",
    "Vietnamese": "Bến cảng thức dậy trước thành phố. Lúc năm giờ những chiếc thuyền đầu tiên trở về, và lúc sáu giờ người mua đã đứng "
    "trên bến với hai tay trong túi. Không ai nói nhiều. Một thùng cá được bán rẻ hơn giá trị của nó vì thời tiết sắp thay đổi.",
    "Indonesian": "Pelabuhan bangun sebelum kota. Pada pukul lima perahu pertama datang, dan pada pukul enam para pembeli sudah berdiri "
    "di dermaga dengan tangan di saku. Tidak ada yang banyak bicara. Sebuah peti ikan dijual lebih murah dari nilainya.",
    "Russian": "Порт просыпается раньше города. В пять часов приходят первые лодки, а в шесть покупатели уже стоят на причале, засунув "
    "руки в карманы. Никто много не говорит. Ящик скумбрии продают дешевле, чем он стоит, потому что погода скоро изменится.",
    "Ukrainian": "Порт прокидається раніше за місто. О п'ятій годині приходять перші човни, а о шостій покупці вже стоять на причалі, "
    "сховавши руки в кишені. Ніхто багато не говорить. Ящик скумбрії продають дешевше, ніж він вартий, бо погода зміниться.",
    "Greek": "Το λιμάνι ξυπνά πριν από την πόλη. Στις πέντε έρχονται οι πρώτες βάρκες και στις έξι οι αγοραστές στέκονται στην προκυμαία "
    "με τα χέρια στις τσέπες. Κανείς δεν μιλάει πολύ. Ένα κιβώτιο σκουμπριά πουλιέται φθηνότερα απ' όσο αξίζει.",
    "Hebrew": "הנמל מתעורר לפני העיר. בשעה חמש מגיעות הסירות הראשונות, ובשש כבר עומדים הקונים על הרציף עם ידיים בכיסים. "
    "אף אחד לא מדבר הרבה. ארגז דגים נמכר בפחות משוויו, כי מזג האוויר עומד להשתנות וכולם יודעים זאת.",
    "Arabic": "يستيقظ الميناء قبل المدينة. في الساعة الخامسة تصل القوارب الأولى، وفي السادسة يقف المشترون على الرصيف وأيديهم في جيوبهم. "
    "لا أحد يتكلم كثيرا. يباع صندوق من السمك بأقل من قيمته لأن الطقس سيتغير والجميع يعرف ذلك.",
    "Persian": "بندر پیش از شهر بیدار می‌شود. ساعت پنج نخستین قایق‌ها می‌رسند و ساعت شش خریداران با دست‌هایی در جیب روی اسکله ایستاده‌اند. "
    "هیچ کس زیاد حرف نمی‌زند. یک جعبه ماهی کمتر از ارزش خود فروخته می‌شود.",
    "Hindi": "बंदरगाह शहर से पहले जागता है। पाँच बजे पहली नावें आती हैं और छह बजे तक खरीदार जेब में हाथ डाले घाट पर खड़े रहते हैं। "
    "कोई ज्यादा बात नहीं करता। मछली की एक पेटी अपनी कीमत से कम में बिक जाती है क्योंकि मौसम बदलने वाला है।",
    "Bengali": "বন্দর শহরের আগে জেগে ওঠে। পাঁচটায় প্রথম নৌকাগুলো আসে, আর ছয়টায় ক্রেতারা পকেটে হাত দিয়ে ঘাটে দাঁড়িয়ে থাকে। "
    "কেউ বেশি কথা বলে না। এক বাক্স মাছ তার দামের চেয়ে কমে বিক্রি হয়।",
    "Tamil": "துறைமுகம் நகரத்திற்கு முன்பே விழித்துக் கொள்கிறது. ஐந்து மணிக்கு முதல் படகுகள் வருகின்றன, ஆறு மணிக்கு வாங்குபவர்கள் "
    "கரையில் நிற்கிறார்கள். யாரும் அதிகம் பேசுவதில்லை. ஒரு பெட்டி மீன் அதன் மதிப்பை விட குறைவாக விற்கப்படுகிறது.",
    "Thai": "ท่าเรือตื่นก่อนเมือง ตอนตีห้าเรือลำแรกกลับเข้ามา และตอนหกโมงผู้ซื้อก็ยืนรออยู่บนท่าแล้ว ไม่มีใครพูดมากนัก "
    "ปลาหนึ่งลังขายได้น้อยกว่าราคาจริงเพราะอากาศกำลังจะเปลี่ยนและทุกคนก็รู้ดี",
    "Georgian": "ნავსადგური ქალაქზე ადრე იღვიძებს. ხუთ საათზე პირველი ნავები მოდის, ექვსზე კი მყიდველები უკვე სანაპიროზე დგანან. "
    "არავინ ბევრს არ ლაპარაკობს. ერთი ყუთი თევზი თავის ფასზე იაფად იყიდება.",
    "Armenian": "Նավահանգիստը արթնանում է քաղաքից առաջ։ Ժամը հինգին գալիս են առաջին նավակները, իսկ վեցին գնորդներն արդեն կանգնած են ափին։ "
    "Ոչ ոք շատ չի խոսում։ Մեկ արկղ ձուկը վաճառվում է իր արժեքից էժան։",
    "Korean": "항구는 도시보다 먼저 깨어난다. 다섯 시에 첫 배들이 들어오고 여섯 시가 되면 구매자들이 주머니에 손을 넣고 부두에 서 있다. "
    "아무도 말을 많이 하지 않는다. 고등어 한 상자가 제값보다 싸게 팔리는데 날씨가 곧 바뀔 것을 모두가 알기 때문이다.",
    "Japanese": "港は町より先に目を覚ます。五時になると最初の船が戻り、六時には買い手たちがポケットに手を入れて岸壁に立っている。"
    "誰もあまり話さない。天気が変わることを皆が知っているので、一箱の魚は本来の値段より安く売られる。",
    "Chinese": "港口比城市醒得早。五点钟第一批船回来了，六点钟买家们已经双手插在口袋里站在码头上。没有人说很多话。"
    "一箱鲭鱼以低于其价值的价格成交，因为天气就要变了，大家都知道。后来孩子们在石头之间寻找螃蟹。",
    "Swahili": "Jana nilienda na marafiki zangu kwenye mgahawa mpya na tukala chakula kitamu.",
    "short Hungarian": "Tegnap a barátaimmal elmentünk az új étterembe és finom vacsorát ettünk.",
    "short Finnish": "Eilen kävin ystävieni kanssa uudessa ravintolassa ja söimme herkullisen illallisen.",
    "Latin in full width": "Ｈｅｌｌｏ　Ｗｏｒｌｄ１２３ " * 5,
    "Amharic": "ወደቡ ከከተማው በፊት ይነቃል። በአምስት ሰዓት የመጀመሪያዎቹ ጀልባዎች ይመጣሉ፣ በስድስት ሰዓት ገዢዎች በወደቡ ላይ ይቆማሉ። ማንም ብዙ አይናገርም።",
}

SCHEMA: dict[str, Any] = {
    "name": "search_messages",
    "description": "Search messages in a mailbox. Returns at most `limit` messages, newest first.\n\nArgs:\n  query: what to look for",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words to look for, or a field such as from:alice",
                "minLength": 1,
            },
            "maxResults": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50},
            "folder": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Folder", "default": None},
            "sortOrder": {"type": "string", "enum": ["newest", "oldest", "relevance"]},
            "labels": {"type": "array", "items": {"type": "string", "format": "uuid"}},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
}


def _texts() -> dict[str, str]:
    dice = random.Random(20261118)

    def pick(alphabet: str, length: int) -> str:
        return "".join(dice.choice(alphabet) for _ in range(length))

    def lines(make: Any, count: int = 60) -> str:
        return "\n".join(make() for _ in range(count))

    numbers = [[dice.random() * 1000 for _ in range(8)] for _ in range(20)]
    rows = [
        {
            "id": str(uuid.UUID(bytes=dice.randbytes(16))),
            "name": f"item {at}",
            "price": at * 7 / 3,
            "active": at % 2 == 0,
        }
        for at in range(40)
    ]
    return {
        **{f"prose in {language}": text for language, text in PROSE.items()},
        "all prose": "\n\n".join(PROSE.values()),
        # Vowel signs, as in the texts of schools and scriptures: two or three characters where there was one.
        "Arabic with vowels": re.sub("([\u0628-\u064a])", "\\1\u064e", PROSE["Arabic"]),
        "Hebrew with vowels": re.sub("([\u05d0-\u05ea])", "\\1\u05b8", PROSE["Hebrew"]),
        "Telugu": "ఓడరేవు పట్టణం కంటే ముందే మేల్కొంటుంది. ఐదు గంటలకు మొదటి పడవలు వస్తాయి. ఎవరూ ఎక్కువగా మాట్లాడరు.",
        "Malayalam": "തുറമുഖം പട്ടണത്തിനു മുമ്പേ ഉണരുന്നു. അഞ്ചു മണിക്ക് ആദ്യത്തെ വള്ളങ്ങൾ വരുന്നു. ആരും അധികം സംസാരിക്കുന്നില്ല.",
        "no-break spaces": "\u00a0" * 2000,
        "control characters": "\x00\x01\x02\x7f" * 200,
        "nested brackets": "[[[[]]]]{{{}}}" * 100,
        "Python": inspect.getsource(random),
        "minified JavaScript": "function a(b,c){var d=b.map(e=>e*2),f={};for(let g=0;g<d.length;g++){f[d[g]]=c?.[g]??null}"
        "return Object.entries(f).filter(([h,i])=>i!==null&&h>3).reduce((j,[k,l])=>({...j,[k]:l}),{})}" * 3,
        "SQL": "SELECT o.id, o.total_cents, c.email FROM orders o JOIN customers c ON c.id = o.customer_id\n"
        "WHERE o.created_at >= '2026-01-01' AND o.status IN ('paid', 'shipped') ORDER BY o.total_cents DESC LIMIT 50;\n"
        * 3,
        "a minified schema": json.dumps(SCHEMA, separators=(",", ":")),
        "an indented schema": json.dumps(SCHEMA, indent=2),
        "escaped JSON": json.dumps(json.dumps(SCHEMA)),
        "rows as JSON": json.dumps(rows, separators=(",", ":")),
        "numeric JSON": json.dumps(numbers),
        "short numbers": json.dumps([[round(number, 2) for number in row] for row in numbers], separators=(",", ":")),
        "integers": json.dumps([dice.randrange(10**9) for _ in range(200)]),
        "small integers": json.dumps([dice.randrange(100) for _ in range(200)]),
        "digits": pick(string.digits, 2000),
        "CSV": lines(lambda: ",".join(f"{dice.random() * 100:.2f}" for _ in range(6))),
        "timestamps": lines(
            lambda: (
                f"2026-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}T08:{dice.randrange(60):02}:11.{dice.randrange(1000):03}Z"
            )
        ),
        "hexadecimal": dice.randbytes(1000).hex(),
        "HEXADECIMAL": dice.randbytes(1000).hex().upper(),
        "a hex dump": lines(
            lambda: f"{dice.randrange(2**32):08x}  " + " ".join(f"{byte:02x}" for byte in dice.randbytes(16))
        ),
        "digests": lines(lambda: f"{dice.randbytes(32).hex()}  archive-{dice.randrange(99)}.tar.gz"),
        "base64": base64.b64encode(dice.randbytes(1500)).decode(),
        "base64 of prose": base64.b64encode(PROSE["English"].encode() * 3).decode(),
        "base32": base64.b32encode(dice.randbytes(1000)).decode(),
        "letters and digits": pick(string.ascii_letters + string.digits, 2000),
        "random words": " ".join(pick(string.ascii_lowercase, dice.randrange(3, 12)) for _ in range(200)),
        "random letters": pick(string.ascii_lowercase, 2000),
        "RANDOM LETTERS": pick(string.ascii_uppercase, 2000),
        "UUIDs": lines(lambda: str(uuid.UUID(bytes=dice.randbytes(16)))),
        "URLs": lines(
            lambda: (
                f"https://api.example.com/v2/users/{dice.randrange(10**6)}/items?page={dice.randrange(50)}&key={dice.randbytes(8).hex()}"
            )
        ),
        "addresses": lines(lambda: ".".join(str(dice.randrange(256)) for _ in range(4))),
        "paths": lines(
            lambda: (
                f"/usr/lib/python3.{dice.randrange(8, 15)}/site-packages/{pick('abcdeilmnoprstu', 8)}/__init__.py:{dice.randrange(900)}"
            )
        ),
        "a log": lines(
            lambda: (
                f"2026-11-18 08:12:11,{dice.randrange(1000):03} INFO [worker-{dice.randrange(8)}] request {dice.randbytes(4).hex()} took {dice.randrange(900)}ms"
            )
        ),
        "signs": pick(string.punctuation, 1000),
        "blanks": " " * 1000,
        "line ends": "\n" * 500,
        "tabs": "\t" * 300,
        "blanks of all kinds": " \n\t  \n" * 100,
        "indentation": lines(lambda: " " * (4 * dice.randrange(8)) + "x"),
        "emoji": pick("😀😂🥰😎🤔👍🙏🎉🔥🚀✨", 200),
        "composed emoji": "".join(dice.choice(["👩‍💻", "👨‍👩‍👧", "🏳️‍🌈", "🇩🇪", "👍🏽", "🧑🏿‍🚀"]) for _ in range(100)),
        "boxes": pick("─│┌┐└┘├┤┬┴┼═║╔╗█▓▒░", 300),
        "a table": lines(
            lambda: "| " + " | ".join(dice.choice(["yes", "no", "12", "3.5", "name"]) for _ in range(6)) + " |"
        ),
        "one letter": "a" * 2000,
        "a rule": "=" * 1000,
        "zeros": "0" * 1000,
    }


TEXTS = _texts()
